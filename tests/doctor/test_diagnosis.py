"""What counts as not ok, and which known issues the installed packages have."""

import pytest

from safe_arm.doctor import diagnosis
from safe_arm.doctor.diagnosis import _PROBES as PROBES
from safe_arm.doctor.diagnosis import Diagnosis, examine, issues_here
from safe_arm.doctor.finding import EVERY_TARGET, Finding, Probed, State
from safe_arm.known_issues import known_issues


@pytest.mark.parametrize(
    ("target", "state", "needed_by", "ok"),
    [
        pytest.param(None, State.OK, EVERY_TARGET, True, id="all is well"),
        pytest.param(None, State.MISSING, EVERY_TARGET, False, id="needed by all and missing"),
        pytest.param(None, State.BROKEN, EVERY_TARGET, False, id="needed by all and broken"),
        pytest.param(None, State.MISSING, ("vgf",), True, id="needed by one and missing"),
        pytest.param(None, State.BROKEN, ("vgf",), False, id="needed by one and broken"),
        pytest.param(None, State.BROKEN, (), True, id="optional and broken"),
        pytest.param("vgf", State.MISSING, ("vgf",), False, id="asked for and missing"),
        pytest.param("vgf", State.BROKEN, ("vgf",), False, id="asked for and broken"),
        pytest.param("tosa", State.BROKEN, ("vgf",), True, id="broken, for another target"),
        pytest.param("ethos-u85-256", State.MISSING, ("ethos-u",), False, id="Ethos-U and missing"),
        pytest.param("ethos-u55-128", State.MISSING, EVERY_TARGET, False, id="Ethos-U, needed by all and missing"),
    ],
)
def test_ok(target, state, needed_by, ok):
    assert Diagnosis(target, {}, (Finding("tool", state, "", "", needed_by),), (), ()).ok is ok


@pytest.mark.parametrize(
    ("executorch", "torchao", "has", "has_not"),
    [
        pytest.param("1.5.1", "0.18.0", {"S1", "D1"}, {"18971", "18322"}, id="1.5.1"),
        pytest.param("1.5.1+cpu", "0.18.0", {"S1", "D1"}, {"18971"}, id="local build"),
        pytest.param("1.4.1", "0.18.0", {"S1", "21629"}, {"D1", "18971"}, id="1.4.1"),
        pytest.param("1.2.0", "0.15.0", {"18971", "18322"}, {"S5"}, id="1.2.0, old torchao"),
        pytest.param("1.2.0", "0.17.0", {"18971"}, {"18322"}, id="1.2.0, newer torchao"),
        pytest.param("1.2.0", "", {"18971"}, {"18322"}, id="1.2.0, no torchao"),
        pytest.param("", "", set(), {issue.id for issue in known_issues()}, id="no executorch"),
    ],
)
def test_known_issues_of_what_is_installed(monkeypatch, executorch, torchao, has, has_not):
    here = {"executorch": executorch, "torchao": torchao}
    monkeypatch.setattr(diagnosis, "installed", lambda package: here.get(package, ""))
    ids = {issue.id for issue in issues_here()}
    assert has <= ids
    assert not has_not & ids


@pytest.mark.parametrize(
    ("target", "tools", "packages"),
    [
        pytest.param("tosa", [], set(), id="tosa"),
        pytest.param("vgf", ["model-converter"], {"model-converter"}, id="vgf"),
        pytest.param("ethos-u55-128", ["Vela"], {"ethos-u-vela"}, id="ethos-u"),
        pytest.param(None, ["Vela", "model-converter", "Vulkan"], {"ethos-u-vela", "model-converter"}, id="all"),
    ],
)
def test_only_what_the_target_needs_is_run_and_listed(monkeypatch, target, tools, packages):
    probes = [(*each, lambda tiny: Probed(State.OK)) for *each, _ in PROBES]
    monkeypatch.setattr(diagnosis, "_PROBES", tuple(probes))
    steps = []
    found = examine(target, steps.append)
    assert steps == ["ExecuTorch", "flatc", "TOSA reference model", *tools]
    assert [finding.name for finding in found.findings] == steps
    assert set(found.versions) & {"model-converter", "ethos-u-vela"} == packages


def test_what_runs_counts_and_not_the_package_of_its_name(monkeypatch):
    probe = ("model-converter", "", ("vgf",), lambda tiny: Probed(State.OK, "0.10.0"))
    monkeypatch.setattr(diagnosis, "_PROBES", (probe,))
    found = examine("vgf", str)
    assert found.versions["model-converter"] == "0.10.0"
    assert [each.package for each in found.untested] == ["ai_ml_sdk_model_converter"]
    assert found.ok
