"""A report of any size, made by hand: what a large net's record looks like."""

from __future__ import annotations

from safe_arm.core.record import Applied, NodeVerdict, QParamsRecord, Reason, Report, Subject, Verification

#: From a check, from a trial lowering and from stock.
REASONS = (
    Reason("relu cannot be fused: its lower bound 0 has code -68, but saturation clamps at -128", "check", "S1"),
    Reason(
        "the trial lowering of its delegate failed: RuntimeError: Tensor 'aten_view_copy_default_12' of rank 7 cannot "
        "be represented, at most 6 dimensions are accepted (to_tosa_reshape, in RewriteViewPass)",
        "preflight",
    ),
    Reason("the stock partitioner refuses it: dtype float64 is not supported by TOSA-1.0+INT", "stock"),
)
STEPS = ("aten::convolution", "aten::relu", "aten::add.Tensor")


def large_report(nodes: int = 5000, every: int = 41) -> Report:
    """A residual net of so many nodes, quantise and dequantise nodes included, with fallbacks now and then.

    Args:
        nodes: how many, at least.
        every: every so many operators, one is a fallback, for three reasons in turn; a delegate is between two of them.
    """
    verdicts: list[NodeVerdict] = []
    trunk, operators = "x", -(-nodes // 3)
    for number in range(operators):
        fallback = number % every == every - 1
        tag = None if fallback else f"tag{number // every}"
        reason = REASONS[number // every % 3]
        if number % 3 == 0:
            skip = trunk
        verdicts += _operator(number, tag, trunk, skip if number % 3 == 2 else "", reason)
        trunk = verdicts[-1].name
    tags = tuple(dict.fromkeys(v.delegate for v in verdicts if v.delegate))
    return Report(
        tuple(verdicts),
        islands_refused=9,
        propagate_would_keep=7,
        trials=31,
        verifications=tuple(Verification(tag, True, "", 10**9, 0.0, 6, 3.2) for tag in tags),
        applied=tuple(Applied("fuse_quantized_activation", "S1", tag, ("aten_convolution_default",)) for tag in tags),
        subject=Subject(
            "ethos-u85-256", "TOSA-1.0+INT+int16", "reject", (), {"safe_arm": "0.1.0"}, ("x",), (verdicts[-1].name,)
        ),
    )


def _operator(number: int, tag: str | None, trunk: str, skip: str, reason: Reason) -> list[NodeVerdict]:
    """Return a dequantise node, an operator and a quantise node."""
    op = STEPS[number % 3]
    name = f"aten_{op.split('::')[1].replace('.', '_').lower()}_default_{number}"
    source = f"backbone.py:{100 + number % 400}  x = self.stages[{number % 7}].blocks[{number % 31}](x, mask=None)"
    qparams = QParamsRecord("int8", -128, 127, 0.0123 + number / 1e5, -3)
    shared = {"source": source, "value": "int8[1, 64, 56, 56]", "bytes": 64 * 56 * 56, "delegate": tag}
    border = () if tag else (Reason("quantisation at the border of a delegate", "boundary"),)
    ends = {**shared, "reasons": border, "qparams": qparams}
    quantize, dequantize = (
        f"quantized_decomposed_{kind}_per_tensor_default_{number}" for kind in ("quantize", "dequantize")
    )
    macs = 64 * 64 * 9 * 56 * 56 if number % 3 == 0 else 0
    inputs = (dequantize, skip) if skip else (dequantize,)
    return [
        NodeVerdict(dequantize, "quantized_decomposed::dequantize_per_tensor", inputs=(trunk,), **ends),
        NodeVerdict(name, op, reasons=() if tag else (reason,), macs=macs, inputs=inputs, **shared),
        NodeVerdict(quantize, "quantized_decomposed::quantize_per_tensor", inputs=(name,), **ends),
    ]
