"""A delegate of dynamic shapes is verified at the smallest, a middle and the largest size, and stays dynamic."""

from dataclasses import replace

import pytest
import torch
from lowering import PROFILES, RELEASE, lower_program, tosa
from proving import delegates_of_program, quantized
from small import Built
from torch import SymInt
from torch.export import Dim

from safe_arm import SafeArmPartitioner, UsageError, verify
from safe_arm.verification.concrete_sizes import UnknownSizeError, input_shapes, sizes_of, tried_sizes, value_at
from safe_arm.verification.crop import cropped
from safe_arm.verification.proof import prove
from safe_arm.verification.reference_model import run_tosa
from safe_arm.verification.samples import matching
from safe_arm.verification.stimuli import Stimulus

lowers = pytest.mark.skipif(RELEASE < (1, 5), reason="1.4 delegates nothing of a dynamic shape")
BATCH, HEIGHT = {0: Dim("b", min=1, max=8)}, {2: 4 * Dim("h", min=2, max=16)}


def net():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.ReLU(), torch.nn.Conv2d(8, 4, 3)).eval()


def exported(dims, profile=PROFILES[0], example=(4, 3, 16, 16), model=None):
    """A quantised program, some of its input's sizes symbols."""
    inputs = (torch.randn(example, generator=torch.Generator().manual_seed(0)),)
    graph_module = quantized(model or net(), inputs, profile, dynamic_shapes=(dims,))
    return torch.export.export(graph_module, inputs, dynamic_shapes=(dims,))


@pytest.fixture(scope="module")
def by_batch():
    program = exported(BATCH)
    (delegate,) = delegates_of_program(program, PROFILES[0])
    return program, delegate


@pytest.fixture(scope="module")
def by_height():
    """A program, its delegate, and what was known of its height before that was made."""
    program = exported(HEIGHT)
    before = _known(program)
    (delegate,) = delegates_of_program(program, PROFILES[0])
    return program, delegate, before


def _known(program):
    """The guards and ranges of a program whose height is a symbol."""
    (height,) = (size for shape in input_shapes(program) for size in shape if isinstance(size, SymInt))
    assert str(height).startswith("4*")
    return list(map(str, height.node.shape_env.guards)), dict(program.range_constraints)


@pytest.fixture
def delegate(by_batch):
    return by_batch[1]


@lowers
def test_a_batch_of_one_is_verified_though_export_traces_none():
    program = exported(BATCH)
    manager = lower_program(program, SafeArmPartitioner(tosa(PROFILES[0]), verify=False))
    (allowed,) = manager.exported_program().range_constraints.values()
    assert allowed.lower == 2
    for batch in (1, 3):
        report = verify(manager, [(torch.randn(batch, 3, 16, 16),)], reference=program)
        assert report.verified
        assert [gap.worst for gap in report.outputs] == [0.0]


def test_a_size_below_the_range_is_no_size_of_it():
    program = exported(HEIGHT)
    with pytest.raises(UnknownSizeError, match=r"a size of 4\*s\d+ cannot be 18"):
        sizes_of(program, [(4, 3, 18, 16)])


@lowers
@pytest.mark.parametrize("name", ["batch", "height"])
def test_it_is_proven_at_three_sizes(profile, name, request):
    sizes = {"batch": "2x3x16x16, 5x3x16x16, 8x3x16x16", "height": "4x3x8x16, 4x3x36x16, 4x3x64x16"}[name]
    if profile == PROFILES[0]:
        delegate = request.getfixturevalue(f"by_{name}")[1]
    else:
        (delegate,) = delegates_of_program(exported({"batch": BATCH, "height": HEIGHT}[name], profile), profile)
    proof = prove(delegate)
    assert (proof.verified, proof.worst, proof.reason) == (True, 0.0, "")
    assert (proof.note, proof.tried) == (f"verified at {sizes}", 18)


@lowers
def test_sizes_that_the_graph_computes_are_computed():
    """A linear is a convolution between two reshapes, whose sizes are TOSA operators here."""
    profile = "TOSA-1.1+INT+shape"
    program = exported(BATCH, profile, (4, 6, 8), torch.nn.Linear(8, 5).eval())
    (delegate,) = delegates_of_program(program, profile)
    proof = prove(delegate)
    assert (proof.verified, proof.worst, proof.note) == (True, 0.0, "verified at 2x6x8, 5x6x8, 8x6x8")


def strided():
    """A convolution, what the CPU does with it, every second row, and another convolution."""
    torch.manual_seed(0)
    first, second = torch.nn.Conv2d(3, 4, 3), torch.nn.Conv2d(4, 4, 2)
    return Built(lambda m, x: m.second(torch.i0(m.first(x))[:, :, ::2]), first=first, second=second)


@lowers
def test_a_delegate_whose_inputs_are_a_fraction_of_the_users():
    samples = [(torch.randn(4, 3, 19, 16),)]
    program = exported({2: Dim("h", min=9, max=40)}, model=strided().eval())
    delegates = delegates_of_program(program, PROFILES[0], verify_samples=samples)
    first, second = map(prove, delegates)
    assert (first.worst, first.note) == (0.0, "verified at 4x3x9x16, 4x3x24x16, 4x3x40x16")
    assert (second.worst, second.note) == (0.0, "verified at 4x4x4x14, 4x4x11x14, 4x4x19x14")
    (size,) = sizes_of(delegates[1].program, [(4, 4, 9, 14)]).values()
    assert (size - 1) // 2 == 9


@lowers
def test_a_fault_at_the_largest_size_only_is_found(delegate):
    def wrong_at_eight(flatbuffer, inputs):
        outputs = run_tosa(flatbuffer, inputs)
        if inputs[0].shape[0] == 8:
            outputs[-1][7] = ~outputs[-1][7]
        return outputs

    proof = prove(delegate, runner=wrong_at_eight)
    assert proof.wrong
    assert proof.note == "at 8x3x16x16"
    assert {name for culprit in proof.culprits for name in culprit.names} == {"aten_convolution_default_1"}


@lowers
def test_a_size_baked_into_the_delegate_is_found(delegate):
    """As if a pass had asked for the number of one tensor's batch."""
    shapes = [{name: shape for name, shape in delegate.shapes[0].items() if name != "tosa_transpose_default"}]
    shapes[0]["tosa_transpose_default"] = torch.Size([4, 16, 16, 3])
    assert not prove(replace(delegate, shapes=shapes)).verified
    any_batch, four = (b"".join(n.to_bytes(4, "little", signed=True) for n in (batch, 16, 16, 3)) for batch in (-1, 4))
    assert not prove(replace(delegate, flatbuffer=delegate.flatbuffer.replace(any_batch, four))).verified


@lowers
def test_a_size_that_nobody_knows_is_no_pass_and_no_fault(delegate):
    proof = prove(replace(delegate, shapes=()))
    assert (proof.verified, proof.wrong) == (False, False)
    assert proof.reason.startswith("not verified: the size of ")
    assert proof.reason.endswith("=2 is not known")


@lowers
def test_nothing_is_settled_in_the_users_program(by_height):
    program, delegate, before = by_height
    matching([(torch.zeros(4, 3, 20, 16),)], program)
    assert cropped(program, 1).reason == "it is not cropped: its shapes are dynamic"
    assert prove(delegate, [Stimulus("mine", (torch.zeros((4, 3, 20, 16), dtype=torch.int8),))]).tried == 19
    assert _known(program) == before
    assert _known(delegate.program)[0] == before[0]


@pytest.mark.parametrize(
    ("ends", "example", "batches"),
    [((3, 4), 4, [3, 4]), ((1, None), 4, [1, 8, 16]), ((6, 1000), 6, [6, 15, 24]), ((2, 60), 6, [2, 31, 60])],
    ids=["two", "endless", "huge", "large"],
)
def test_the_ends_of_the_range(ends, example, batches):
    low, high = ends
    dims = ({0: Dim("b", min=low, max=high)},)
    program = torch.export.export(net(), (torch.zeros(example, 3, 16, 16),), dynamic_shapes=dims)
    assert [list(map(int, sizes.values())) for sizes in tried_sizes(program)] == [[batch] for batch in batches]


@pytest.fixture(scope="module")
def floats():
    """A program whose height is a symbol, neither quantised nor lowered."""
    return torch.export.export(net(), (torch.zeros(4, 3, 16, 16),), dynamic_shapes=(HEIGHT,))


def test_symbols_come_from_sizes_and_inputs_of_another_rank_have_none(floats):
    assert [*sizes_of(floats, [(4, 3, 20, 16)]).values()] == [5]
    with pytest.raises(ValueError, match="shorter"):
        sizes_of(floats, [(4, 3, 20)])


def test_a_size_without_its_symbols_or_below_zero_is_not_known(floats):
    (height,) = (size for shape in input_shapes(floats) for size in shape if isinstance(size, SymInt))
    sizes = sizes_of(floats, [(4, 3, 20, 16)])
    assert (value_at(height, sizes), value_at(height - 20, sizes)) == (20, 0)
    for size, known in ((height, {}), (height - 24, sizes)):
        with pytest.raises(UnknownSizeError, match="is not known"):
            value_at(size, known)


@pytest.mark.parametrize(
    ("shape", "says"),
    [
        ((4, 3, 18, 16), r"inputs that the model does not take together: a size of 4\*s\d+ cannot be 18"),
        ((4, 3, 20, 15), r"float32 of shape \(4, 3, 20, 15\)"),
        ((4, 3, 20), r"float32 of shape \(4, 3, 20\)"),
    ],
    ids=["multiple", "width", "dims"],
)
def test_samples_that_do_not_fit(shape, says, floats):
    with pytest.raises(UsageError, match=says):
        matching([(torch.zeros(shape),)], floats)


@lowers
def test_samples_of_several_sizes_are_proven_with(by_batch):
    samples = [(torch.randn(7, 3, 16, 16),), (torch.randn(2, 3, 16, 16),)]
    partitioner = SafeArmPartitioner(tosa(PROFILES[0]), verify=True, verify_samples=samples)
    lower_program(by_batch[0], partitioner)
    (record,) = partitioner.report.verifications
    assert (record.verified, record.tried) == (True, 20)
    assert record.note == "verified at 7x3x16x16, 2x3x16x16, 5x3x16x16, 8x3x16x16"


@lowers
def test_a_limit_is_shared_by_the_sizes(delegate):
    assert prove(delegate, most=6).tried == 6
