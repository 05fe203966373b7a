"""A compiler that is missing or does not run is told before the long work."""

import stat
import sys
from pathlib import Path

import pytest


def fake(folder: Path, name: str, script: str, mode: int = 0o755) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(script)
    (folder / name).chmod(mode)
    return folder / name


@pytest.fixture
def no_converter(monkeypatch, tmp_path):
    """An interpreter with nothing beside it and a PATH without a converter."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to(sys.executable)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin" / "python"))
    monkeypatch.setenv("PATH", str(tmp_path / "tools"))
    monkeypatch.delenv("MODEL_CONVERTER_PATH", raising=False)
    return tmp_path / "tools"


@pytest.mark.usefixtures("no_converter")
def test_missing_converter(files):
    result = files.run(target="vgf")
    files.refuses(result, "no model-converter found: looked at", "install it with", "set MODEL_CONVERTER_PATH to it")


@pytest.mark.parametrize(
    ("script", "mode", "says"),
    [
        pytest.param(
            "#!/bin/sh\necho 'GLIBC_2.38 not found' >&2; exit 1",
            0o755,
            "(GLIBC_2.38 not found); install one that does with: pip install ai_ml_sdk_model_converter==0.11.0, or",
            id="0.10.0",
        ),
        pytest.param("no program", 0o755, "does not run: Exec format error", id="no program"),
        pytest.param("#!/bin/sh", stat.S_IRUSR, "is not executable)", id="not executable"),
        pytest.param("#!/no/such/shell", 0o755, "does not run: No such file or directory", id="no interpreter"),
    ],
)
def test_converter_that_does_not_run(files, no_converter, script, mode, says):
    converter = fake(no_converter, "model-converter", script, mode)
    files.refuses(files.run(target="vgf"), str(converter), says, "MODEL_CONVERTER_PATH")


@pytest.mark.parametrize(
    ("script", "says"),
    [
        pytest.param("raise SystemExit(3)", "--version exits with status 3", id="exits"),
        pytest.param("raise ImportError('no libvela')", "(ImportError: no libvela)", id="does not import"),
    ],
)
def test_vela_that_does_not_run(files, tmp_path, monkeypatch, script, says):
    fake(tmp_path / "ethosu", "__init__.py", script)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    result = files.run(target="ethos-u55-128")
    files.refuses(result, "Vela does not run: ", says, "pip install ethos-u-vela==5.2.0")
