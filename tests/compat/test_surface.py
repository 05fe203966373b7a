"""Nothing that safe_arm touches inside ExecuTorch, torchao or torch has moved since the release was recorded.

After looking at what changed, ``python tests/support/surface.py`` records the installed release anew.
"""

import json

import pytest
import surface
from executorch.backends.arm.tosa.backend import TOSABackend

from safe_arm import seams
from safe_arm._compat import upstream


@pytest.fixture(scope="module")
def found():
    return surface.surface()


def changed(found):
    recorded = json.loads(surface.recorded_in().read_text())
    return {
        name: (recorded.get(name, surface.ABSENT), found.get(name, surface.ABSENT))
        for name in recorded.keys() | found.keys()
        if recorded.get(name) != found.get(name)
    }


@pytest.mark.skipif(not surface.recorded_in().exists(), reason="this release is not recorded")
def test_nothing_has_moved_or_changed_its_signature(found):
    assert changed(found) == {}


@pytest.mark.skipif(not surface.recorded_in().exists(), reason="this release is not recorded")
def test_a_moved_name_and_a_new_parameter_are_named(monkeypatch):
    seams.uninstall()
    monkeypatch.delattr("executorch.backends.arm._passes.arm_pass_utils.is_persistent_buffer")
    monkeypatch.setattr(TOSABackend, "_preprocess", staticmethod(lambda edge_program, compile_spec, more: None))
    root = "executorch.backends.arm"
    now = changed(surface.surface())
    assert now.keys() == {
        f"{root}._passes.arm_pass_utils.is_persistent_buffer",
        f"{root}.tosa.backend.TOSABackend._preprocess",
    }
    assert now[f"{root}._passes.arm_pass_utils.is_persistent_buffer"][1] == surface.ABSENT


def test_every_patch_import_and_override_is_in_it(found):
    assert {f"{surface.path_of(patch.owner)}.{patch.name}" for patch in seams.patches()} <= found.keys()
    names = {name.rpartition(".")[2] for name in found}
    assert {name for name in vars(upstream) if not name.startswith("_")} - {"exir_ops"} <= names
    assert {"add_pass", "_transform", "partition", "_tag_module", "ops_to_not_decompose"} <= names
