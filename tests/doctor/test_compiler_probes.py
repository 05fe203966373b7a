"""Vela and model-converter: run, and the fix named for each way in which they do not."""

import os
import sys
from pathlib import Path

import pytest
from tools_at_hand import no_converter, tool

from safe_arm.core.versions import glibc
from safe_arm.doctor.compiler_probes import CONVERTER, model_converter, vela
from safe_arm.doctor.finding import State
from safe_arm.doctor.python_side import reference_model

TOO_NEW = """#!/bin/sh
echo "$0: /lib/libstdc++.so.6: version \\`GLIBCXX_3.4.32' not found (required by $0)" >&2
echo "$0: /lib/libc.so.6: version \\`GLIBC_2.4' not found (required by $0)" >&2
echo "$0: /lib/libc.so.6: version \\`GLIBC_9.38' not found (required by $0)" >&2
exit 1
"""
ANSWERS_ONLY = "#!/bin/sh\n[ $1 = --version ] || { echo 'cannot read' >&2; exit 1; }"


@pytest.fixture(scope="session")
def tiny(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("tiny") / "tiny.tosa"
    assert reference_model(path).state is State.OK
    return path


@pytest.fixture
def nothing_installed(monkeypatch, tmp_path):
    """An interpreter with nothing beside it, an empty PATH and no model_converter package."""
    no_converter(monkeypatch, tmp_path)
    monkeypatch.setattr("safe_arm.doctor.compiler_probes.find_spec", lambda name: None)
    return tmp_path


def test_vela_compiles(tiny):
    finding = vela(tiny)
    assert (finding.state, finding.fix) == (State.OK, "")
    assert "it compiles a CLAMP" in finding.detail
    assert "ethosu.vela runs" in vela(tiny.with_name("none")).detail, "without a graph it says its version"
    assert "NPU operators = 1" in finding.output


def test_vela_that_does_not_import(tiny, tmp_path, monkeypatch):
    tool(tmp_path / "ethosu" / "__init__.py", "raise ImportError('no libvela')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    finding = vela(tiny)
    assert finding.state is State.BROKEN
    assert finding.detail == "it does not run: ImportError: no libvela"
    assert finding.fix == f"pip install --force-reinstall --no-deps ethos-u-vela=={finding.version}"


def test_vela_that_is_not_installed(tiny, monkeypatch):
    monkeypatch.setattr("safe_arm.doctor.compiler_probes.installed", lambda package: "")
    finding = vela(tiny)
    assert (finding.state, finding.fix) == (State.MISSING, "pip install ethos-u-vela==5.2.0")


def test_converter_on_path_converts(tiny, monkeypatch):
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    finding = model_converter(tiny)
    assert (finding.state, finding.fix) == (State.OK, "")
    assert finding.version == "0.11.0"
    assert finding.detail.endswith("model-converter converts a CLAMP to VGF")


def test_converter_beside_the_interpreter_only(tiny, monkeypatch):
    monkeypatch.setenv("PATH", os.defpath)
    monkeypatch.delenv("MODEL_CONVERTER_PATH", raising=False)
    finding = model_converter(tiny)
    assert finding.state is State.OK
    assert "not on PATH, only beside the interpreter" in finding.detail
    assert finding.fix == f'export PATH="{Path(sys.executable).parent}:$PATH"'


def test_no_converter(tiny, nothing_installed):
    finding = model_converter(tiny)
    assert (finding.state, finding.fix) == (State.MISSING, f"pip install {CONVERTER}")


def test_converter_package_whose_tool_is_nowhere_to_be_found(tiny, nothing_installed, monkeypatch):
    binary = nothing_installed / "site" / "model_converter" / "binaries" / "bin" / "model-converter"
    binary.parent.mkdir(parents=True)
    binary.touch()
    (nothing_installed / "site" / "model_converter" / "__init__.py").touch()
    monkeypatch.undo()
    monkeypatch.syspath_prepend(nothing_installed / "site")
    monkeypatch.setattr(sys, "executable", str(nothing_installed / "bin" / "python"))
    monkeypatch.setenv("PATH", "")
    finding = model_converter(tiny)
    assert (finding.state, finding.fix) == (State.BROKEN, f"export MODEL_CONVERTER_PATH={binary}")


def test_converter_that_needs_a_newer_glibc(tiny, nothing_installed):
    path = tool(nothing_installed / "tools" / "model-converter", TOO_NEW)
    finding = model_converter(tiny)
    assert finding.state is State.BROKEN
    here = f", this machine has {glibc()}" if glibc() else ""
    assert finding.detail.startswith(f"{path} needs glibc 9.38{here}; ai_ml_sdk_model_converter 0.11.0 runs")
    mine = nothing_installed / "bin" / "model-converter"
    assert finding.fix == f"pip install --no-deps {CONVERTER} && export MODEL_CONVERTER_PATH={mine}"
    path.rename(mine)
    assert model_converter(tiny).fix == f"pip install --no-deps {CONVERTER}", "this environment's own"


@pytest.mark.parametrize(
    ("script", "mode", "says", "fix"),
    [
        pytest.param("#!/bin/sh\nexit 7", 0o755, "does not run: exits 7", "--force-reinstall", id="fails"),
        pytest.param("#!/bin/sh\nkill -9 $$", 0o755, "ended by signal 9", "--force-reinstall", id="killed"),
        pytest.param("no program", 0o755, "Exec format error", "--force-reinstall", id="no program"),
        pytest.param("#!/bin/sh", 0o400, "is not executable", "chmod +x ", id="not executable"),
        pytest.param(ANSWERS_ONLY, 0o755, "cannot read", "--force-reinstall", id="answers but does not convert"),
    ],
)
def test_converter_that_does_not_run(tiny, nothing_installed, script, mode, says, fix):
    tool(nothing_installed / "tools" / "model-converter", script, mode)
    finding = model_converter(tiny)
    assert finding.state is State.BROKEN
    assert says in finding.detail
    assert fix in finding.fix
