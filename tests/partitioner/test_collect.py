"""The record has every node of a real program, and every reason of every stage that had a say."""

import json

import pytest
import torch
from executorch.exir.backend.utils import WhyNoPartitionReporter
from lowering import PROFILES, lower, lower_safely, quantize, tosa
from prepared import prepared
from schemas import check_document
from small import Lambda, image
from spying import noted
from stubborn import DOUBLE, Stubborn, converted, quantizer_of, ramp
from torch.fx import Graph, GraphModule

from safe_arm import SafeArmPartitioner
from safe_arm._compat.upstream import TOSAPartitioner
from safe_arm.partitioner.collect import placed_operators

INT = PROFILES[0]
CONV_BESSEL = Lambda(lambda m, x: torch.i0(m.conv(x)))


def recorded(net, profile=INT, inputs=None, **kwargs):
    inputs = inputs or image()
    _, partitioner = lower_safely(quantize(net, inputs, tosa(profile)), inputs, tosa(profile), **kwargs)
    return partitioner.report


def of(report, name):
    return next(v for v in report.verdicts if v.name == name)


@pytest.fixture(scope="module")
def bessel():
    partitioner = SafeArmPartitioner(tosa(INT), verify=False)
    partitioner.partition(prepared(CONV_BESSEL).program())
    return partitioner.report


def test_stock_says_one_reason_of_a_node_and_keeps_it_to_itself(monkeypatch):
    reported = noted(monkeypatch, WhyNoPartitionReporter, "report_reject", lambda *args: args[1:])
    TOSAPartitioner(tosa(INT)).partition(prepared(CONV_BESSEL).program())
    assert len({reason for node, reason in reported if node.name == "aten_i0_default"}) == 1


def test_ours_has_all_reasons(bessel):
    texts = [reason.text for reason in of(bessel, "aten_i0_default").reasons]
    assert len(texts) == len(set(texts)) >= 2
    assert {reason.stage for reason in of(bessel, "aten_i0_default").reasons} == {"stock"}


def test_a_node_has_its_size_its_qparams_and_what_it_reads(bessel):
    conv, weight = (
        of(bessel, "aten_convolution_default"),
        of(bessel, "quantized_decomposed_dequantize_per_channel_default"),
    )
    assert (conv.value, conv.bytes, conv.macs) == ("float32[1, 4, 8, 8]", 1024, 4 * 4 * 9 * 64)
    assert weight.constant_bytes >= 4 * 4 * 9
    assert weight.qparams.axis == 0
    assert weight.qparams.scale is None
    quantize_input = of(bessel, "quantized_decomposed_quantize_per_tensor_default")
    assert quantize_input.verdict == "de-tagged", "it is taken off a border"
    assert quantize_input.inputs == bessel.subject.inputs == ("x",)
    assert (quantize_input.qparams.dtype, quantize_input.qparams.quant_min) == ("int8", -128)
    assert of(bessel, "aten_i0_default").source == "small.py:25  return self.function(self, x, *more)"


def test_our_reason_comes_before_stock_s():
    report = recorded(Lambda(lambda m, x: torch.cat([torch.nn.functional.relu(m.conv(x)), x], 1)), verify=False)
    relu = of(report, "aten_relu_default")
    assert (relu.stage, relu.issue, relu.verdict) == ("check", "S1", "refused")
    assert not any("RefusedByPlan" in reason.text for v in report.verdicts for reason in v.reasons)


def test_every_node_has_a_reason_or_a_delegate_and_the_record_is_as_its_schema_says(bessel):
    assert all(bool(v.delegate) != bool(v.reasons) for v in bessel.verdicts)
    check_document(json.loads(json.dumps(bessel.to_dict())), "report/report")
    assert set(bessel.subject.outputs) <= {v.name for v in bessel.verdicts}
    assert bessel.subject.versions["executorch"]


@pytest.mark.filterwarnings("ignore::safe_arm.core.errors.DemotionWarning")
def test_a_nested_graph_has_a_path():
    net = Lambda(lambda m, x: torch.cond(x.sum() > 0, lambda y: torch.fmod(y, 2.0), lambda y: y + 1, (x,)))
    _, partitioner = lower_safely(net, image(), tosa("TOSA-1.0+FP"), verify=False)
    (path,) = {v.graph for v in partitioner.report.verdicts if v.op == "aten::fmod"}
    assert path
    assert "" in {v.graph for v in partitioner.report.verdicts}


@pytest.mark.filterwarnings("ignore:.*stay float")
def test_what_the_quantiser_left_float_says_why():
    net = Stubborn(DOUBLE[0][1])
    partitioner = SafeArmPartitioner(tosa(INT), verify=False)
    graph_module = converted(net, quantizer_of(profile=INT), ramp())
    lower(graph_module, ramp(), partitioner)
    left = partitioner.report.left_float
    assert left
    assert all(v.left_float.startswith("observe: ") and "float64" in v.left_float for v in left)


def test_an_operator_of_a_branch_is_in_the_delegate_of_its_condition():
    branch, whole = Graph(), Graph()
    branch.output(branch.call_function(torch.relu, (branch.placeholder("x"),)))
    condition = whole.get_attr("branch")
    condition.meta["delegation_tag"] = "tag0"
    whole.output(whole.call_function(torch.tanh, (whole.placeholder("x"),)))
    graph_module = GraphModule({"branch": GraphModule({}, branch)}, whole)
    placed = [(path, tag, node.target) for path, tag, node in placed_operators(graph_module)]
    assert placed == [("branch", "tag0", torch.relu), ("", None, torch.tanh)]
