"""Every node is somewhere, where the report says it is, and what runs on this CPU is measured."""

import json
from pathlib import Path

import jsonschema
import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import to_edge_transform_and_lower
from lowering import EDGE, quantize, tosa
from torch.export import Dim

import safe_arm.report
from safe_arm import SafeArmPartitioner
from safe_arm.core.errors import UsageError
from safe_arm.core.record import joined
from safe_arm.report.engines import engines, random_inputs, with_engines
from safe_arm.report.html import html

SCHEMA = json.loads((Path(safe_arm.report.__file__).parent / "report.schema.json").read_text())
PROFILE = "TOSA-1.0+INT+FP"


class Joined(nn.Module):
    """A relu behind a convolution, sharing its quantisation with a neighbour that has negative values."""

    def __init__(self, conv) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv = conv(4, 4, 3, padding=1)
        self.eval()

    def forward(self, x):
        return torch.cat((F.relu(self.conv(x)), x), 1)


def lowered(*others, conv=nn.Conv2d, rank=2, **options):
    inputs = (torch.randn(1, 4, *([6] * rank)),)
    graph_module = quantize(Joined(conv), inputs, tosa(PROFILE))
    ours = SafeArmPartitioner(tosa(PROFILE), **options)
    exported = torch.export.export(graph_module, inputs)
    return to_edge_transform_and_lower(exported, partitioner=[ours, *others], compile_config=EDGE), ours.report


def test_a_chain_has_two_engines_and_agrees_with_the_report():
    manager, report = lowered(XnnpackPartitioner())
    result = engines(manager)
    for verdict in report.compute:
        assert result.engine_of(verdict.name) == ("TOSABackend" if verdict.delegate else "XnnpackBackend"), verdict
    assert {v.name for v in report.verdicts} - {n.name for n in result.nodes} == {
        "quantized_decomposed_dequantize_per_channel_default_1"  # the bias, float by now
    }
    assert {node.delegate for node in result.nodes if node.engine == "TOSABackend"} == set(report.delegates)
    ours, xnnpack = sorted(result.delegates, key=lambda cost: cost.engine)
    assert (ours.microseconds, ours.portable_microseconds) == (None, None)
    assert ours.reason == "runs on the accelerator"
    assert xnnpack.reason == ""
    assert xnnpack.microseconds > 0
    assert xnnpack.portable_microseconds > 0


def test_without_a_second_partitioner_the_rest_is_portable():
    manager, report = lowered()
    result = engines(manager)
    for verdict in report.fallbacks:
        assert result.engine_of(verdict.name) == "portable"
    assert [cost.engine for cost in result.delegates] == ["TOSABackend"]
    assert {node.delegate for node in result.nodes if node.engine == "portable"} == {""}


def test_the_report_takes_them_in():
    manager, report = lowered(XnnpackPartitioner())
    full = with_engines(report, manager, measure=False)
    assert {v.engine for v in full.compute if v.delegate} == {"TOSABackend"}
    assert {v.engine for v in full.fallbacks} == {"XnnpackBackend"}
    assert {cost.engine for cost in full.engines} == {"TOSABackend", "XnnpackBackend"}
    assert [cost.delegate for cost in full.engines if cost.engine == "TOSABackend"] == list(report.delegates)
    record = json.loads(json.dumps(full.to_dict()))
    jsonschema.validate(record, SCHEMA)
    assert {node["engine"] for node in record["nodes"]} == {"TOSABackend", "XnnpackBackend", ""}
    assert {v.engine for v in report.verdicts} == {""}


def test_what_xnnpack_runs_is_not_drawn_as_refused():
    manager, report = lowered(XnnpackPartitioner())
    page, plain = html(with_engines(report, manager, measure=False)), html(report)
    assert '<article class="reason elsewhere">' in page
    assert "refused, on XnnpackBackend</span>" in page
    assert '<article class="reason refused">' in plain
    assert "<h2>Engines</h2>" in page
    assert "<h2>Engines</h2>" not in plain


def test_several_methods_are_taken_in_each_for_itself():
    inputs = (torch.randn(1, 4, 6, 6),)
    spec, programs, partitioners = tosa(PROFILE), {}, {}
    for name, net in {"enc": Joined(nn.Conv2d), "dec": nn.Conv2d(4, 4, 3).eval()}.items():
        programs[name] = torch.export.export(quantize(net, inputs, spec), inputs)
        partitioners[name] = [SafeArmPartitioner(spec), XnnpackPartitioner()]
    manager = to_edge_transform_and_lower(programs, partitioner=partitioners, compile_config=EDGE)
    report = joined({name: chain[0].report for name, chain in partitioners.items()})
    full = with_engines(report, manager, measure=False)
    names = {name: {v.engine for v in own.compute} for name, own in full.by_method.items()}
    assert names == {"enc": {"TOSABackend", "XnnpackBackend"}, "dec": {"TOSABackend"}}
    assert {cost.delegate.partition(":")[0] for cost in full.engines} == {"enc", "dec"}
    assert len({cost.delegate for cost in full.engines}) == len(full.engines)
    jsonschema.validate(json.loads(json.dumps(full.to_dict())), SCHEMA)


def test_a_dynamic_size_is_measured_at_its_example_and_stays_dynamic():
    program = torch.export.export(nn.Conv2d(4, 4, 3), (torch.rand(3, 4, 6, 6),), dynamic_shapes=({0: Dim("b", max=9)},))
    size = program.graph.output_node().args[0][0].meta["val"].shape[0]
    before = (
        [str(guard.expr) for guard in size.node.shape_env.guards],
        str(size),
        dict(size.node.shape_env.replacements),
    )
    assert [tuple(each.shape) for each in random_inputs(program)] == [(3, 4, 6, 6)]
    assert (
        [str(g.expr) for g in size.node.shape_env.guards],
        str(size),
        dict(size.node.shape_env.replacements),
    ) == before
    assert not isinstance(size, int)


def test_it_is_json_and_measures_only_when_asked():
    manager, _ = lowered(XnnpackPartitioner())
    result = engines(manager, measure=False).to_dict()
    assert json.loads(json.dumps(result)) == result
    assert sorted(cost["reason"] for cost in result["delegates"]) == ["not asked for", "runs on the accelerator"]
    assert {"name", "op", "engine", "delegate"} == set(result["nodes"][0])


def test_measuring_changes_nothing_and_may_be_repeated():
    manager, _ = lowered(XnnpackPartitioner())
    before = manager.to_executorch().buffer
    first = engines(manager)
    assert manager.to_executorch().buffer == before
    assert engines(manager).nodes == first.nodes


def test_a_delegate_that_does_not_load_is_not_measured_and_says_so():
    manager, _ = lowered(XnnpackPartitioner(), conv=nn.Conv3d, rank=3, preflight=False)
    reasons = {cost.reason for cost in engines(manager).delegates if cost.engine == "XnnpackBackend"}
    assert any(reason.startswith("does not run here: Failed to load method") for reason in reasons)


def test_wrong_use_says_what_would_be_right():
    manager, _ = lowered()
    with pytest.raises(UsageError, match=r"takes what to_edge_transform_and_lower returned.* not ExportedProgram"):
        engines(manager.exported_program())
    with pytest.raises(UsageError, match="the program has no method 'backward'; it has forward"):
        engines(manager, method="backward")
