"""The border of a delegate is counted as bytes, quantisers and kernels."""

import io

import torch
from prepared import prepared
from rich.console import Console

from safe_arm.core.device_cost import Border
from safe_arm.core.record import NodeVerdict
from safe_arm.partitioner.borders import borders
from safe_arm.report.terminal import print_details

Q, DQ = "quantized_decomposed::quantize_per_tensor", "quantized_decomposed::dequantize_per_tensor"
CUT = (
    NodeVerdict("q", Q, None, bytes=4, inputs=("x",)),
    NodeVerdict("conv", "aten::convolution", "first", bytes=8, inputs=("q",)),
    NodeVerdict("dq", DQ, None, bytes=32, inputs=("conv",)),
    NodeVerdict("both", "aten::i0", None, bytes=96, inputs=("dq",)),
    NodeVerdict("sort", "", None, bytes=32, inputs=("both",)),
    NodeVerdict("back", Q, None, bytes=8, inputs=("sort",)),
    NodeVerdict("add", "aten::add", "second", bytes=8, inputs=("back", "conv")),
    NodeVerdict("q", Q, None, bytes=5, inputs=("add",), graph="branch"),
)


def test_what_several_read_counts_once_and_what_computes_nothing_is_passed_over():
    assert borders(CUT) == {
        "first": Border(4, 8, 1, 1, ("aten::i0",)),
        "second": Border(8 + 8, 0, 1, 0, ("aten::i0",)),
    }


def bessel(m, x):
    return torch.tanh(torch.sigmoid(x).i0())


def test_a_report_has_them_in_its_text_and_as_json():
    report = prepared(bessel).partitioned(preflight=False)
    size = prepared(bessel).inputs[0].numel()
    expected = Border(size, size, 1, 1, ("aten::i0",))
    assert [*report.borders.values()] == [expected, expected]
    assert report.to_dict()["borders"] == {tag: vars(border) for tag, border in report.borders.items()}
    console = Console(file=io.StringIO(), width=200)
    print_details(report, console)
    line = f"border: {size} bytes in, {size} out; 1 quantise, 1 dequantise; 1 CPU kernel: aten::i0"
    assert console.file.getvalue().count(line) == 2
