"""Two made-up methods whose reports have the same names everywhere, alone and joined."""

from safe_arm.core.device_cost import VelaSummary
from safe_arm.core.record import Applied, NodeVerdict, QParamsRecord, Reason, Report, Subject, Verification, joined


def one_method(macs: int) -> Report:
    """Return the report of a method ``x -> quantise -> conv -> relu``, with a relu in a nested graph as well."""
    refused = (Reason("not implied", "check", "S1"),)
    border = (Reason("at the border", "boundary"),)
    verdicts = (
        NodeVerdict(
            "q", "quantized_decomposed::quantize_per_tensor", None, border, inputs=("x",),
            qparams=QParamsRecord("int8", -128, 127, 0.5, 0),
        ),
        NodeVerdict("conv", "aten::convolution", "tag0", macs=macs, inputs=("q",), value="int8[s77, 4, 16, 16]"),
        NodeVerdict("relu", "aten::relu", None, refused, source="net.py:3  relu(x)", inputs=("conv", "x")),
        NodeVerdict("relu", "aten::relu", None, refused, graph="true_graph_0"),
    )  # fmt: skip
    return Report(
        verdicts, 2, 1, 3, False, (Verification("tag0", True, "", macs, 0.0, 6, 0.5),),
        (Applied("honest-fusion", "S1", "tag0", ("conv",)),), Subject("tosa", inputs=("x",), outputs=("relu", "x")),
        {"tag0": macs},
        vela=(VelaSummary("tag0", {"cycles_total": macs}),),
    )  # fmt: skip


ENCODE, DECODE = one_method(300), one_method(100)
BOTH = joined({"enc": ENCODE, "dec": DECODE})
