"""A user's type checker learns something from ours: what it says of our names is no Any."""

import importlib.metadata

import pytest
import tomllib
from interpreter import ROOT, python

from safe_arm._compat.tested_releases import PINNED

pytestmark = pytest.mark.skipif(
    importlib.metadata.version("executorch") != PINNED["executorch"], reason="mypy is in the main lane"
)
SCRIPT = """
from torch.export import ExportedProgram
from safe_arm import SafeArmPartitioner, SafeTOSAQuantizer, verify
from safe_arm.accuracy import measure

def use(partitioner: SafeArmPartitioner, quantizer: SafeTOSAQuantizer, program: ExportedProgram) -> None:
    reveal_type(partitioner.report)
    reveal_type(quantizer.left_float)
    reveal_type(verify(None, [], reference=program))
    reveal_type(measure)
    partitioner.verify = "yes"
"""
REVEALED = [
    '"safe_arm.core.record.Report | None"',
    '"tuple[safe_arm.quantizer.annotation.left_float.LeftFloat, ...]"',
    '"safe_arm.verification.whole.VerificationReport"',
    "reference: torch.export.exported_program.ExportedProgram | torch.fx.graph_module.GraphModule",
]


def test_our_own_check_follows_imports():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]
    assert settings.get("follow_imports", "normal") in ("normal", "silent")
    assert [each for each in settings.get("overrides", []) if each.get("follow_imports") == "skip"] == []


def test_a_user_s_script_is_checked_against_our_types(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    command = ("-m", "mypy", "--strict", "--follow-imports=silent", "--cache-dir=cache", "script.py")
    ended = python(*command, cwd=tmp_path, MYPYPATH=str(ROOT))
    notes = [line for line in ended.stdout.splitlines() if "Revealed type is" in line]
    assert len(notes) == len(REVEALED), ended.stdout
    assert [text for text, note in zip(REVEALED, notes, strict=True) if text not in note] == []
    assert 'Incompatible types in assignment (expression has type "str", variable has type "bool")' in ended.stdout
