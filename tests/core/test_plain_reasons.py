"""What people read has no schema, no traceback and no list of passes; what is plain already stays as it is."""

import pytest

from safe_arm.core.plain_reasons import LONGEST, plain, plain_left_float

SCHEMA = (
    "<EdgeOpOverload: dim_order_ops._to_dim_order_copy.default>: schema = dim_order_ops::_to_dim_order_copy(Tensor "
    "self, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, bool? pin_memory=None, bool "
    "non_blocking=False, int[]? dim_order=None) -> Tensor"
)
TOPK = "<EdgeOpOverload: aten.topk.default>: schema = aten::topk(Tensor self, SymInt k) -> (Tensor values, Tensor i)"
ANY = (
    "ExirToTosaPass fails on it: TosaValueError: REDUCE_ANY requires bool input, got torch.float32 While executing "
    "%tosa_reduce_any_default : [num_users=1] = call_function[target=x](args = (%y,), kwargs = {axis: 1}) Original "
    'traceback: File "any_net....'
)
BROKEN = (
    "APass fails on it: InvariantError: invariant 'domains-meet' broken by APass: add reads scale 0.5, zero point 3 "
    "(changed before it by: FoldPass, FusePass"
)


@pytest.mark.parametrize(
    ("reason", "says"),
    [
        (
            f"Output dtype torch.int64 is not supported in {SCHEMA} for input dtype torch.int32.",
            "a cast of int32 to int64 is not supported",
        ),
        (f"Input dtype torch.bool is not supported in {SCHEMA}.", "a cast of bool is not supported"),
        (f"no {TOPK} here", "no aten::topk here"),
        (f"{SCHEMA[:140]}...", "dim_order_ops::_to_dim_order_copy"),
        ("<EdgeOpOverload: aten.view_copy.default> has int64", "aten::view_copy has int64"),
        (ANY, "ExirToTosaPass fails on it: TosaValueError: REDUCE_ANY requires bool input, got torch.float32"),
        (
            "Not included in BaseTOSASupportList or a registered tosa_support_check",
            "the Arm backend cannot lower this operator",
        ),
        ("Op is not supported on U55.", "an Ethos-U55 does not support this operator"),
        ("Node was not marked as quantized in the Arm backend.", "it is not quantised"),
        ("One or more inputs were not quantized.", "an input is not quantised"),
        ("Non-constant int64 input place", "its input place is int64 and not constant"),
        ("Non-constant node with int64 output.", "its output is int64 and not constant"),
        ("Was first node in partition and input x had fp dtype.", "its input x is float, at the border of a delegate"),
        (f"{BROKEN})", "APass fails on it: it breaks domains-meet: add reads scale 0.5, zero point 3"),
        (f"{BROKEN[:-3]}...", "APass fails on it: it breaks domains-meet: add reads scale 0.5, zero point 3"),
    ],
    ids=["schema", "schema at the end", "two results", "schema cut short", "name", "traceback", "list", "u55",
         "not quantised", "an input", "int64 input", "int64 output", "border", "passes", "passes cut"],
)  # fmt: skip
def test_what_is_raw_becomes_plain(reason, says):
    assert plain(reason) == says
    assert plain(says) == says


@pytest.mark.parametrize(
    ("reason", "ends"),
    [
        ("Unsupported stride of (3, 3) for Ethos-U55. You can use stride of (1,1)", "column: this has (3, 3)"),
        ("HWC must be in the range [1;65536] but got 1 70000 2", "columns: this has 1, 70000 and 2"),
        ("Kernel Height * Kernel Width must be in the range [1;4096] but got 4225", "this has 4225 elements"),
        ("Depthwise convolution must have CWH <= 65536, got 70000)", "rows and columns: this has 70000"),
        ("Convolution must have C <= 65536, got 70000)", "at most 65,536 channels: this has 70000"),
        (
            "Convolution needs to have kernel_y<=64, kernel_x*kernel_y<=4096, got kernel (3, 65)",
            "4,096 elements: this has 3 rows and 65 columns",
        ),
        ("Convolution3d needs to have kernel_z==1, got 3.", "last dimension: this has 3"),
        ("Convolution3d only supports stride_z<=1, got 2.", "last dimension: this has 2"),
    ],
)
def test_a_limit_of_the_ethos_u55_is_named_with_the_value_that_exceeds_it(reason, ends):
    assert plain(reason).startswith("an Ethos-U55 takes ")
    assert plain(reason).endswith(ends)


@pytest.mark.parametrize(
    "reason",
    [
        "Symbolic view dims unsupported",
        "Symbolic slices unsupported",
        "Node has symbolic shape arguments, has the TOSA spec shape extension support?",
        "aten::arange() Expected a value of type 'number' for argument 'end' but instead found type 'Node'.",
    ],
)
def test_a_dynamic_size_is_said_in_plain_words(reason):
    assert "known only at run time" in plain(reason)


@pytest.mark.parametrize(
    "reason", ["relu cannot be fused: its bound 0 has code 2", "differs by up to 3 codes (random)"]
)
def test_what_is_plain_stays(reason):
    assert plain(reason) == reason


@pytest.mark.parametrize(
    ("reason", "says"),
    [
        ("transform: RuntimeError: Argmax of floats", "the quantiser fails to transform it: Argmax of floats"),
        ("annotate: KeyError: 'x'", "the quantiser fails to annotate it: 'x'"),
        ("observe: float64 cannot be quantised", "float64 cannot be quantised"),
        ("--keep-float first", "--keep-float first"),
    ],
)
def test_why_an_operator_is_float(reason, says):
    assert plain_left_float(reason) == says


def test_a_long_exception_is_cut_between_words():
    text = plain_left_float(f"observe: ValueError: {'word ' * 90}")
    assert text.endswith("word ...")
    assert len(text) <= LONGEST + 4
