"""Nothing that safe_arm touches inside ExecuTorch, torchao or torch has moved since the release was recorded.

A release that is not recorded is compared with the newest that is, so that a new one says what moved. After looking at
what changed, ``python tools/surface.py`` records the installed release anew.
"""

import pytest
import surface
from executorch.backends.arm.tosa.backend import TOSABackend

from safe_arm import seams
from safe_arm._compat import upstream

ARM = "executorch.backends.arm"
MOVED = f"{ARM}._passes.arm_pass_utils.is_persistent_buffer"
GREW = f"{ARM}.tosa.backend.TOSABackend._preprocess"


@pytest.fixture(scope="module")
def found():
    return surface.surface()


@pytest.fixture
def not_recorded(monkeypatch):
    """Make the installed ExecuTorch a release of which nothing is recorded."""
    monkeypatch.setattr(surface, "executorch_version", lambda: "99.1.0")


def planted(monkeypatch, found):
    """Move one name and add a parameter to another; return what differs now and did not before."""
    before = surface.changed(found)
    seams.uninstall()
    monkeypatch.delattr(MOVED)
    monkeypatch.setattr(TOSABackend, "_preprocess", staticmethod(lambda edge_program, compile_spec, more: None))
    now = surface.changed(surface.surface())
    return {name: now[name] for name in now.keys() - before.keys()}


def test_nothing_has_moved_or_changed_its_signature(found):
    changes = surface.changed(found)
    assert not changes, surface.told(changes)


def test_a_moved_name_and_a_new_parameter_are_named(monkeypatch, found):
    changes = planted(monkeypatch, found)
    assert changes.keys() == {MOVED, GREW}
    assert changes[MOVED][1] == surface.ABSENT


@pytest.mark.usefixtures("not_recorded")
def test_a_release_that_is_not_recorded_is_compared_with_the_newest(monkeypatch, found):
    assert not surface.recorded_in(surface.installed_release()).exists()
    assert surface.recorded_in(surface.compared_release()).exists()
    assert surface.compared_release() == max(("1.4", "1.5", surface.compared_release()), key=surface.parse)
    assert planted(monkeypatch, found).keys() == {MOVED, GREW}


@pytest.mark.usefixtures("not_recorded")
def test_what_is_gone_comes_before_what_changed_and_what_is_new():
    changes = {"a.new": (surface.ABSENT, "()"), "b.grew": ("(x)", "(x, y)"), "c.gone": ("()", surface.ABSENT)}
    recorded = surface.compared_release()
    assert surface.told(changes).splitlines() == [
        f"3 names differ between the recorded ExecuTorch {recorded} and the installed 99.1",
        "  gone     c.gone",
        "  changed  b.grew",
        "    was  (x)",
        "    now  (x, y)",
        "  new      a.new",
        "see each, then record it: python tools/surface.py",
    ]
    assert surface.told({}) == f"0 names differ between the recorded ExecuTorch {recorded} and the installed 99.1"


def test_every_patch_import_and_override_is_in_it(found):
    assert {f"{surface.path_of(patch.owner)}.{patch.name}" for patch in seams.patches()} <= found.keys()
    names = {name.rpartition(".")[2] for name in found}
    assert {name for name in vars(upstream) if not name.startswith("_")} - {"exir_ops"} <= names
    assert {"add_pass", "_transform", "partition", "_tag_module", "ops_to_not_decompose"} <= names
