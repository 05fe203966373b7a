"""Vulkan: run where its packages are, and the packages named where they are not."""

from safe_arm.doctor.finding import State
from safe_arm.doctor.python_side import reference_model
from safe_arm.doctor.vulkan_probe import vulkan


def test_it_runs_or_says_what_is_missing(tmp_path):
    tiny = tmp_path / "tiny.tosa"
    assert reference_model(tiny).state is State.OK
    finding = vulkan(tiny)
    assert finding.state in (State.OK, State.MISSING), finding
    assert "Error" not in finding.detail
    assert (finding.state is State.OK) == (finding.fix == "")


def test_without_a_graph_it_is_not_tried(tmp_path):
    assert "not tried" in vulkan(tmp_path / "none").detail
