"""Several methods of one program: each is tried once, shipped as tried, and in the report."""

from functools import cache

import pytest
import torch
from executorch.exir import to_edge_transform_and_lower
from lowering import EDGE, PROFILES, codes_apart, min_max, quantize, tosa
from small import Lambda, image
from spying import noted

from safe_arm import SafeArmPartitioner, seams
from safe_arm._compat.upstream import TOSABackend

NETS = {
    "enc": Lambda(lambda m, x: torch.sigmoid(m.conv(x))),
    "dec": Lambda(lambda m, x: torch.cat((torch.relu(m.conv_b(x)), x), 1)),
}


@pytest.fixture
def backend_runs(monkeypatch):
    seams.install()  # so that what is put back afterwards is wrapped too
    return noted(monkeypatch, TOSABackend, "_preprocess")


@cache
def quantised(name, profile):
    return quantize(NETS[name], image(), tosa(profile), config=min_max())


def lowered(profile, partitioners):
    graph_modules = {name: quantised(name, profile) for name in NETS}
    programs = {name: torch.export.export(graph_module, image()) for name, graph_module in graph_modules.items()}
    each = {name: [partitioner] for name, partitioner in zip(NETS, partitioners, strict=True)}
    return to_edge_transform_and_lower(programs, partitioner=each, compile_config=EDGE), graph_modules


def test_one_partitioner_for_both(profile, backend_runs):
    partitioner = SafeArmPartitioner(tosa(profile), verify=True)
    manager, graph_modules = lowered(profile, [partitioner] * 2)
    report = partitioner.report
    assert len(backend_runs) == report.trials == 2, "no trial is thrown away"
    assert report.methods == ("enc", "dec") == tuple(partitioner.reports)
    assert report.delegates == ("enc:tag0", "dec:tag0")
    assert [(each.method, each.verified) for each in report.verifications] == [("enc", True), ("dec", True)]
    assert [verdict.method for verdict in report.fallbacks] == ["dec"] * len(report.fallbacks) != []
    for name, graph_module in graph_modules.items():
        alone = manager.exported_program(name)
        assert codes_apart(type("Manager", (), {"exported_program": lambda self: alone})(), graph_module, image()) == 0  # noqa: B023


def test_one_partitioner_each(backend_runs):
    partitioners = [SafeArmPartitioner(tosa(PROFILES[0]), verify=False) for _ in NETS]
    lowered(PROFILES[0], partitioners)
    assert [partitioner.report.methods for partitioner in partitioners] == [("enc",), ("dec",)]
    assert len(backend_runs) == sum(partitioner.report.trials for partitioner in partitioners) == 2


def test_the_next_program_begins_anew_and_the_old_report_stays_readable():
    partitioner = SafeArmPartitioner(tosa(PROFILES[0]))
    lowered(PROFILES[0], [partitioner] * 2)
    old = partitioner.report
    before = old.to_dict()
    program = torch.export.export(quantised("enc", PROFILES[0]), image())
    to_edge_transform_and_lower(program, partitioner=[partitioner], compile_config=EDGE)
    assert partitioner.report.methods == ("forward",)
    assert old.methods == ("enc", "dec")
    assert old.to_dict() == before


def test_a_delegate_that_both_methods_have_is_proven_in_both(backend_runs):
    programs = {name: torch.export.export(quantised("enc", PROFILES[0]), image()) for name in ("enc", "dec")}
    partitioner = SafeArmPartitioner(tosa(PROFILES[0]), verify=True)
    to_edge_transform_and_lower(programs, partitioner=[partitioner], compile_config=EDGE)
    assert [(v.method, v.verified) for v in partitioner.report.verifications] == [("enc", True), ("dec", True)]
    assert len(backend_runs) == 2
