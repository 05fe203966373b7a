"""ExecuTorch, flatc and the reference model: run, and the fix named for each way in which they do not."""

import importlib.metadata

import pytest

from safe_arm.doctor import python_side
from safe_arm.doctor.finding import State
from safe_arm.doctor.python_side import arm_backend, flatc, reference_model

TOGETHER = "executorch==1.5.1 torch==2.13.0 torchao==0.18.0"


def shadow(folder, monkeypatch, module: str, code: str) -> None:
    """Put a module before the real one, in the processes the doctor starts."""
    (folder / f"{module}.py").write_text(code)
    monkeypatch.setenv("PYTHONPATH", str(folder))


def test_reference_model_computes(tmp_path):
    finding = reference_model(tmp_path / "tiny.tosa")
    assert (finding.state, finding.fix) == (State.OK, "")
    assert finding.version == importlib.metadata.version("tosa-tools")
    assert (tmp_path / "tiny.tosa").stat().st_size > 100


@pytest.mark.parametrize(
    ("code", "says"),
    [
        pytest.param("raise ImportError('libtosa.so: cannot open')", "libtosa.so: cannot open", id="does not import"),
        pytest.param("import os; os.abort()", "ended by signal 6", id="crashes"),
        pytest.param(
            "class GraphStatus: TOSA_VALID = 0\ndef run(graph, inputs, **_): return inputs, 0",
            "the reference model computes a clamp wrong",
            id="computes something else",
        ),
    ],
)
def test_reference_model_that_does_not_work(tmp_path, monkeypatch, code, says):
    shadow(tmp_path, monkeypatch, "tosa_reference_model", code)
    finding = reference_model(tmp_path / "tiny.tosa")
    assert finding.state is State.BROKEN
    assert says in finding.detail
    assert finding.fix == "pip install --force-reinstall --no-deps tosa-tools==2026.8.0"


def test_reference_model_that_is_not_installed(tmp_path, monkeypatch):
    shadow(tmp_path, monkeypatch, "tosa_serializer", "raise ModuleNotFoundError(\"No module named 'tosa_serializer'\")")
    monkeypatch.setattr(python_side, "installed", lambda package: "")
    finding = reference_model(tmp_path / "tiny.tosa")
    assert (finding.state, finding.fix) == (State.MISSING, "pip install tosa-tools==2026.8.0")


@pytest.mark.parametrize(
    ("shadowed", "module", "fix"),
    [
        ("tosa_serializer", "tosa_serializer", "pip install tosa-tools==2026.8.0"),
        ("executorch", "torch", "pip install torch==2.13.0"),
        ("executorch", "pandas", "pip install pandas torch==2.13.0"),
        ("executorch", "torchao", f"pip install --force-reinstall --no-deps {TOGETHER}"),
        ("executorch", "", f"pip install --force-reinstall --no-deps {TOGETHER}"),
    ],
)
def test_no_remedy_brings_another_torch(tmp_path, monkeypatch, shadowed, module, fix):
    error = f"ModuleNotFoundError(\"No module named '{module}'\")" if module else "ImportError('undefined symbol')"
    shadow(tmp_path, monkeypatch, shadowed, f"raise {error}")
    finding = arm_backend()
    assert (finding.state, finding.fix) == (State.BROKEN, fix)
    assert (f"No module named '{module}'" if module else "undefined symbol") in finding.detail


def test_executorch_that_is_not_installed(monkeypatch):
    monkeypatch.setattr(python_side, "installed", lambda package: "")
    finding = arm_backend()
    assert (finding.state, finding.fix) == (State.MISSING, f"pip install {TOGETHER}")


def test_flatc_runs():
    finding = flatc()
    assert finding.state is State.OK
    assert finding.version[0].isdigit()


def test_flatc_that_is_missing_or_does_not_run(monkeypatch, tmp_path):
    monkeypatch.setattr(python_side, "find_spec", lambda name: None)
    monkeypatch.setenv("FLATC_EXECUTABLE", str(tmp_path / "flatc"))
    finding = flatc()
    assert finding.state is State.MISSING
    assert finding.fix.startswith("pip install --force-reinstall --no-deps executorch==")
    (tmp_path / "flatc").write_text("no program")
    finding = flatc()
    assert finding.state is State.BROKEN
    assert "flatc does not run: Permission denied" in finding.detail
