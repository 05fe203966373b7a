"""The corpus: natural failures of stock ExecuTorch 1.5.1's Arm export, each with a cause or a path of its own."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn as nn
import torch.nn.functional as F
from failure import Failure, in_company
from small import DQ, Q, image, qdq

FP, INT, MIXED = "TOSA-1.0+FP", "TOSA-1.0+INT", "TOSA-1.0+INT+FP"
CAST = "dim_order_ops::_to_dim_order_copy"


def named(operators: str) -> tuple[str, ...]:
    """Return operators by their names, of which those of aten have no namespace."""
    return tuple(name if "::" in name else f"aten::{name}" for name in operators.split())


def failing(stage, name, culprits, raises, culprit, profile=INT, quantised="int8", **company) -> Failure:
    """A failure of a function between two convs, quantised by stock's quantiser or float."""
    return Failure(name, stage, profile, in_company(culprit, **company), quantised, named(culprits), raises)


def filled(h):
    h = h.clone()
    h[:, 1] = 0.5
    return h


def hardtanh():
    return {"conv": nn.Conv2d(4, 4, 3, padding=1), "activation": nn.Hardtanh(0, 1)}


partition, lower, serialize, emit = (
    partial(failing, stage, profile=FP, quantised=None) for stage in ("partition", "lower", "serialize", "emit")
)

#: Float nets: integer and boolean side computations, odd ranks, odd shapes.
FLOAT = (
    # Integers: the support list does not look at dtypes, and a float profile has few for them. A cast rounds (S22).
    lower("int16-add", f"add {CAST}", "Unsupported dtype torch.int16 for ADD",
        lambda m, h: (h.to(torch.int16) + 3).float()),
    lower("int8-mul-without-int", f"mul {CAST}", "doesn't support int8 for MUL",
        lambda m, h: h.to(torch.int8) * h.to(torch.int8)),
    lower("int32-neg", "neg", "doesn't support torch.int32 for NEGATE", lambda m, h: (-h.to(torch.int32)).float()),
    lower("int32-abs", "abs", "doesn't support int32 for ABS", lambda m, h: h.to(torch.int32).abs().float()),
    lower("int32-sum", "sum", "doesn't support integer reductions",
        lambda m, h: h.to(torch.int32).sum(1, dtype=torch.int32).float()),
    lower("int32-amax", "amax", "doesn't support integer reductions", lambda m, h: h.to(torch.int32).amax(1).float()),
    lower("int32-maximum", "maximum", "doesn't support int32 for MAXIMUM",
        lambda m, h: torch.maximum(h.to(torch.int32), (h * 2).to(torch.int32)).float()),
    lower("int32-relu", "relu", "Unsupported dtype torch.int32 for CLAMP",
        lambda m, h: F.relu(h.to(torch.int32)).float()),
    lower("int32-clamp", "clamp", "doesn't support int32 for MAXIMUM",
        lambda m, h: torch.clamp(h.to(torch.int32), 0, 3).float()),
    serialize("int8-clamp", f"clamp {CAST}", "Unknown operator <EdgeOpOverload: aten.clamp.default>",
        lambda m, h: torch.clamp(h.to(torch.int8), 0, 3).float()),
    # The permutes around the conv are lost at one operand of the logical op, the comparison with swapped operands.
    lower("bool-and-behind-conv", "lt", "Attempting to broadcast a dimension of length 4 at -1",
        lambda m, h: ((h > 0) & (h < 1)).float()),
    lower("bool-amax", "amax", "Unsupported dtype torch.bool for REDUCE_MAX", lambda m, h: (h > 0).amax(1)),
    lower("norm-of-order-0", "sum", "Unsupported dtype torch.bool for REDUCE_SUM",
        lambda m, h: torch.linalg.vector_norm(h, ord=0, dim=1)),
    # DecomposeSoftmaxPass makes an amax of rank 0, which nothing rewrites.
    serialize("softmax-of-a-scalar", "_softmax", "Unknown operator <EdgeOpOverload: aten.amax.default>",
        lambda m, h: F.softmax(h.sum(), 0)),
    lower("cumsum-of-a-scalar", "cumsum", "ZeroDivisionError: integer modulo by zero",
        lambda m, h: h.sum().cumsum(0)),
    # Kept whole for the delegate, then refused for its rank; no kernel runs it.
    emit("pad-of-rank-7", "pad", "Missing out variants: {'aten::pad'}",
        lambda m, h: F.pad(h.view(1, 2, 2, 2, 4, 4, 2), (1, 1))),
    # Export drops the bound that equals the default; ConvertToClampPass reads args[2].
    lower("hardtanh-0-1-float", "hardtanh", "IndexError: tuple index out of range",
        lambda m, h: m.activation(m.conv(h)), members=hardtanh),
    # The scalar is viewed as the slice it is to fill.
    lower("setitem-of-a-scalar", "copy unsqueeze_copy", "shape '[1, 1, 8, 8]' is invalid for input of size 1",
        lambda m, h: filled(h)),
    lower("split-with-an-empty-part", "split_with_sizes_copy", "Expected start + size values between [0, 4] but got 0",
        lambda m, h: h.split([0, 4], 1)),
    lower("any-of-floats", "any", "REDUCE_ANY requires bool input, got torch.float32", lambda m, h: torch.any(h, 1)),
    # An empty list of dims means all of them to aten, none to DecomposeMeanDimPass.
    lower("mean-over-no-dims", "mean", "shape '[]' is invalid for input of size 256", lambda m, h: h.mean(())),
    lower("conv-with-a-computed-weight", "convolution", "unsupported param type, call_function",
        lambda m, h: F.conv2d(h, h[:, :, :3, :3].reshape(1, 4, 3, 3))),
    # The batch norm it becomes has neither weight nor bias.
    lower("instance-norm-with-running-stats", "_native_batch_norm_legit_no_training",
        "TypeError: new(): data must be a sequence (got NoneType)", lambda m, h: m.norm(h),
        members=lambda: {"norm": nn.InstanceNorm2d(4, track_running_stats=True)}),
    lower("int32-max-pool", "max_pool2d max_pool2d_with_indices", "Unsupported input dtype torch.int32 pools",
        lambda m, h: F.max_pool2d(h.to(torch.int32), 2).float()),
    lower("average-pool-without-a-batch", "avg_pool2d", "not enough values to unpack (expected 4, got 3)",
        lambda m, h: F.avg_pool2d(h[0], 2)),
    # The permutes around the pool are moved through one operand of DecomposeSignPass's comparison only. A power of a
    # negative base is S23.
    lower("power-average-pool", "sign abs avg_pool2d pow", "Attempting to broadcast a dimension of length 2 at -1",
        lambda m, h: F.lp_pool2d(h, 2, 3)),
    # CheckInt64InputsAndOutputs evaluates the constant and asks for its least value.
    partition("empty-int64-constant", f"full add {CAST}",
        "min(): Expected reduction dim to be specified for input.numel() == 0",
        lambda m, h: torch.full((0,), 3).to(torch.int32) + 1),
    emit("pad-of-int64", "pad", "Missing out variants: {'aten::pad'}", lambda m, h: F.pad(h.to(torch.int64), (1, 1))),
    emit("selu-of-bfloat16", "selu", "Missing out variants: {'aten::selu'}",
        lambda m, h: F.selu(h.bfloat16()).float()),
    # FuseBatchNorm2dPass makes a 1x1 conv of a BatchNorm1d on two dims.
    lower("batch-norm-of-features", "_native_batch_norm_legit_no_training",
        "Expected 4-dimensional input for 4-dimensional weight", lambda m, h: m.norm(h[:, :, 0, 0]),
        members=lambda: {"norm": nn.BatchNorm1d(4)}),
)  # fmt: skip

quantise, partition, lower, serialize, convert = (
    partial(failing, stage) for stage in ("quantise", "partition", "lower", "serialize", "convert")
)

#: Passes that run for annotation, observers and annotators raise.
QUANTISE = (
    quantise("max-with-indices", "max", "Argmax is not supported by the arm_quantizer",
        lambda m, h: tuple(torch.max(h, 1))),
    quantise("norm-of-order-infinity", "abs amax", "is not supported for linalg_vector_norm operator",
        lambda m, h: torch.linalg.vector_norm(h, ord=float("inf"), dim=1)),
    quantise("where-with-nan", "where", "is not finite", lambda m, h: torch.where(h > 0, h, float("nan"))),
    # float64 is annotated, but quantize_per_tensor takes float32.
    quantise("double-mul", f"mul {CAST}", "Expecting input to have dtype torch.float32, but got dtype: torch.float64",
        lambda m, h: (h.double() * 2).float()),
    # DecomposeAddmmPass multiplies the parameter by beta where a traced value is expected.
    quantise("addmm-of-parameters", "addmm mm add mul", "'Parameter' object has no attribute 'to_tensor'",
        lambda m, h: torch.addmm(m.bias, h.view(32, 8), m.weight),
        members=lambda: {"bias": nn.Parameter(torch.rand(8)), "weight": nn.Parameter(torch.rand(8, 8))}),
    quantise("mean-over-no-dims-quantised", "mean", "shape '[]' is invalid for input of size 256",
        lambda m, h: h.mean(())),
    # DecomposeLstmPass does not know proj_size.
    quantise("lstm-with-a-projection", "mm addmm sigmoid tanh mul add",
        "Attempting to broadcast a dimension of length 8 at -1", lambda m, h: m.lstm(h.view(4, 8, 8)[:, :1])[0],
        members=lambda: {"lstm": nn.LSTM(8, 8, proj_size=4)}),
    # The pass that narrows int64 constants for annotation does not look at their users.
    quantise("index-fill", "index_fill index_put", "index_fill_(): Expected dtype int64 for index",
        lambda m, h: h.index_fill(1, torch.tensor([1, 2]), 3.0)),
    # DecomposeCosineSimilarityPass takes dim=0 for no dim and puts 1.
    quantise("cosine-similarity-of-vectors", "mul sum linalg_vector_norm",
        "Dimension out of range (expected to be in range of [-1, 0], but got 1)",
        lambda m, h: F.cosine_similarity(h.flatten(), h.flatten() * 2, 0)),
    quantise("average-pool-without-a-batch-quantised", "avg_pool2d", "not enough values to unpack (expected 4, got 3)",
        lambda m, h: F.avg_pool2d(h[0], 2)),
    # ConvertInt64ConstOpsToInt32Pass asks for the least value.
    quantise("empty-int64-constant-quantised", "arange eq",
        "min(): Expected reduction dim to be specified for input.numel() == 0",
        lambda m, h: torch.cat((h.flatten(), (torch.arange(0) == 1).float()))),
)  # fmt: skip

#: What is behind the quantisers raises on what they quantised.
LOWER = (
    # MUL makes int32, the edge graph int8.
    serialize("int8-mul", "mul", "tosa.MUL.default: Expected all tensors to have dtype DType.INT8",
        lambda m, h: h.to(torch.int8) * h.to(torch.int8)),
    # An int32 ReLU in an integer profile becomes a comparison in float.
    lower("int32-relu-quantised", f"relu {CAST}", "doesn't support float32 for GREATER_EQUAL",
        lambda m, h: F.relu(h.to(torch.int32)).float()),
    lower("bool-eq", "eq", "Unsupported dtype torch.bool for EQUAL", lambda m, h: ((h > 0) == (h < 1)).float()),
    # CheckProperQuantization reads args[2], which export dropped, or in the mixed profile FuseQuantizedActivationPass.
    partition("hardtanh-0-1", "hardtanh", "tuple index out of range",
        lambda m, h: m.activation(m.conv(h)), members=hardtanh),
    lower("hardtanh-0-1-mixed", "hardtanh convolution", "tuple index out of range",
        lambda m, h: m.activation(m.conv(h)), profile=MIXED, members=hardtanh),
    # The view that DecomposeLinearPass puts behind the conv carries no qparams, nor do the convs of a grouped one.
    lower("linear-hardtanh-cat", "hardtanh linear", "No output quantization parameter found",
        lambda m, h: torch.cat((F.hardtanh(m.linear(h), 0.0, 6.0), h * 20 - 3), -1), profile=MIXED,
        members=lambda: {"linear": nn.Linear(8, 8)}),
    lower("grouped-conv-hardtanh-cat", "hardtanh convolution", "No output quantization parameter found",
        lambda m, h: torch.cat((F.hardtanh(m.grouped(h), 0.0, 6.0), h * 20 - 3), 1), profile=MIXED,
        members=lambda: {"grouped": nn.Conv2d(4, 4, 3, padding=1, groups=2)}),
    # eps has a domain of its own, 1e-8 wide, and the RESCALE to it no shift; the clamp of a norm at 1e-12 the same.
    serialize("cosine-similarity", "clamp mul", "Shift should be in range [2, 62]",
        lambda m, h: F.cosine_similarity(h, h * 2, 1)),
    serialize("normalize", "mul clamp", "Shift should be in range [2, 62]", lambda m, h: F.normalize(h)),
    # The quantiser annotates the bias as an activation.
    lower("conv-with-a-computed-bias", "convolution",
        "only supports torch.int32 bias for torch.int8 input but found torch.int8",
        lambda m, h: F.conv2d(h, m.weight, h[0, :, 0, 0]),
        members=lambda: {"weight": nn.Parameter(torch.rand(4, 4, 3, 3))}),
)  # fmt: skip


def qdq16(value, scale):
    """Quantise and dequantise in int16."""
    args = (scale, 0, -32768, 32767, torch.int16)
    return DQ(Q(value, *args), *args)


def qdq_unsigned(value):
    """Quantise and dequantise in uint8."""
    args = (0.02, 128, 0, 255, torch.uint8)
    return DQ(Q(value, *args), *args)


class QuantisedCompany(nn.Module):
    """Quantised conv and ReLU, the culprit, and another quantised conv: behind the culprit if the shape allows it.

    The culprit computes on the net, the dequantised output of the ReLU and a float input that nobody quantised.
    """

    def __init__(self, culprit: Callable[..., Any]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.culprit = culprit
        for name in ("before", "behind"):
            self.register_buffer(name, torch.randint(-127, 128, (4, 4, 3, 3), dtype=torch.int8))
        self.eval()

    def conv(self, x, weight):
        return F.conv2d(x, DQ(weight, 0.01, 0, -127, 127, torch.int8), padding=1)

    def forward(self, x, y):
        args = (0.02, -128, -128, 127, torch.int8)
        codes = Q(F.relu(self.conv(qdq(x, 1 / 128, 0), self.before)), *args)
        # A dequantiser for each user, as PT2E's conversion makes them.
        hidden, beside = DQ(codes, *args), DQ(codes, *args)
        result = self.culprit(self, hidden, y)
        if isinstance(result, torch.Tensor) and result.shape == hidden.shape:
            return qdq(self.conv(result, self.behind), 0.1, 0)
        return qdq(self.conv(beside, self.behind), 0.1, 0), result


def handmade(name, culprits, raises, culprit, profile=MIXED, stage="lower") -> Failure:
    """A failure of a hand-made graph that carries Arm's annotation mark, as mixed precision may produce it."""

    def build():
        return QuantisedCompany(culprit), (*image(), *image(seed=1))

    return Failure(name, stage, profile, build, "handmade", named(culprits), raises)


def two_domains(value):
    """Two quantisers with different qparams on one value."""
    return qdq(value, 0.1, 0), qdq(value, 0.3, 5)


HANDMADE = (
    # InsertRescaleInt32Pass asserts one set of output qparams; a table has one output domain.
    handmade("add-with-two-quantisers", "add", "AssertionError", lambda m, h, y: two_domains(h + h), profile=INT),
    handmade("sigmoid-with-two-quantisers", "sigmoid",
        "InsertTableOpsPass expected exactly one output quantization parameter",
        lambda m, h, y: two_domains(h.sigmoid()), profile=INT),
    # The dequantiser of the one operand is folded away, and codes meet floats.
    handmade("cat-of-int8-and-float", "cat", "CONCAT requires matching dtypes, got torch.int8 and torch.float32",
        lambda m, h, y: qdq(torch.cat((h, y), 1), 0.1, 0)),
    # A comparison with a float scalar loses the dequantiser of its input.
    handmade("where-on-an-int8-comparison", "gt where mul", "Unsupported dtype torch.int8 for GREATER",
        lambda m, h, y: qdq(torch.where(h > 0.2, h, h * 0.5), 0.1, 0)),
    # An int16 island in a profile without the extension gets as far as CONV2D's visitor.
    handmade("int16-conv-without-int16", "add convolution", "got: DType.INT16",
        lambda m, h, y: qdq16(h + h, 0.001), profile=INT, stage="serialize"),
    # InsertRescaleInt32Pass takes operands of one width only.
    handmade("add-of-int8-and-int16", f"add mul {CAST}", "Mismatch in dtype args: torch.int8 != torch.int16",
        lambda m, h, y: qdq(h + qdq16(h * 2, 0.001), 0.1, 0)),
    # Output qparams are kept by the index of the user, and RewriteConvPass asks for the first.
    handmade("conv-whose-first-user-is-float", "convolution sum", "KeyError: 0",
        lambda m, h, y: (lambda t: (t.sum(), qdq(t, 0.1, 0)))(m.conv(h, m.behind))),
    # int8 operands make the conv an int8 one, though its output is float.
    handmade("conv-relu-without-quantiser", "convolution relu", "No output quantization parameter found",
        lambda m, h, y: (F.relu(m.conv(h, m.behind)),)),
    # The scalar becomes a constant without qparams.
    handmade("add-of-a-float-scalar", f"add {CAST}", "Expected two input qparams",
        lambda m, h, y: qdq(h + 1, 0.05, 0)),
    # One operand is folded to int8, the other stays float.
    handmade("matmul-of-int8-and-float", "bmm expand_copy view_copy",
        "expected scalar type torch.int8 but found torch.float32", lambda m, h, y: qdq(torch.matmul(h, y), 0.1, 0)),
    handmade("maximum-of-int8-and-float", "maximum",
        "Expecting input to have dtype torch.float32, but got dtype: torch.int8",
        lambda m, h, y: qdq(torch.maximum(h, y), 0.1, 0)),
    # The shift of a 16-bit table is log2 of its largest value.
    handmade("table-of-zeros-in-int16", "tanh", "OverflowError: cannot convert float infinity to integer",
        lambda m, h, y: qdq16(torch.tanh(qdq16(h, 1e-9)), 1.0), profile="TOSA-1.0+INT+int16"),
    # uint8 is for the graph's inputs and outputs, but a Q/DQ pair inside brings it in.
    handmade("conv-of-uint8", "convolution", "Unsupported input dtype torch.uint8",
        lambda m, h, y: qdq(m.conv(qdq_unsigned(h), m.behind), 0.1, 0), profile=INT),
    # The dequantiser stays as an output of the delegate, and the conv beside it reads the float.
    handmade("dequantiser-shared-with-a-float-op", "convolution topk", "to be of the same type as input torch.float32",
        lambda m, h, y: (qdq(m.conv(h, m.behind), 0.1, 0), torch.topk(h, 3)[0])),
)  # fmt: skip

#: The targets' own tools and profiles: VGF, Ethos-U, int16 activations, control flow.
TARGETS = (
    # The support check accepts what Vela refuses.
    convert("vela-transposed-conv-of-int16", "convolution", "could not run on NPU",
        lambda m, h: m.transposed(h), profile="ethos-u55-128", quantised="a16w8",
        members=lambda: {"transposed": nn.ConvTranspose2d(4, 4, 3, stride=2)}),
    # DecomposeCumsumPass makes a depthwise conv whose weights are as wide as the activations.
    lower("cumsum-of-int16", "cumsum", "only supports torch.int8 weights for torch.int16 input but found torch.int16",
        lambda m, h: h.cumsum(1), profile="ethos-u85-256", quantised="a16w8"),
    # Behind the fold a table-to-be is traced as float32, and so is the kernel of ones.
    lower("cumsum-behind-a-table", "cumsum", "only supports torch.int8 weights for torch.int8 input",
        lambda m, h: h.tanh().cumsum(1)),
    # a16w8 needs +int16, and nobody says so before the visitor of CONV2D, or the fake kernel of TABLE.
    serialize("conv-of-int16-without-int16", "convolution relu", "DType.INT16", lambda m, h: h, quantised="a16w8"),
    lower("table-of-int16-without-int16", "convolution relu tanh", "doesn't support int16",
        lambda m, h: torch.tanh(h), quantised="a16w8"),
    # Inside a branch an integer scalar is an int64 input, and a weight a placeholder.
    serialize("cond-with-a-scalar", f"add mul {CAST}", "Unsupported type: torch.int64",
        lambda m, h, p: torch.cond(p, lambda a: a + 1, lambda a: a * 2, (h,)), profile="vgf:TOSA-1.0+FP",
        quantised=None, others=lambda: (torch.tensor(True),)),
    lower("cond-with-a-conv", "convolution relu", "unsupported param type, placeholder",
        lambda m, h, p: torch.cond(p, lambda a: F.relu(m.branch(a)), lambda a: F.relu(a), (h,)),
        profile="vgf:TOSA-1.0+FP", quantised=None, members=lambda: {"branch": nn.Conv2d(4, 4, 3, padding=1)},
        others=lambda: (torch.tensor(True),)),
)  # fmt: skip

FAILURES: tuple[Failure, ...] = (*FLOAT, *QUANTISE, *LOWER, *HANDMADE, *TARGETS)
