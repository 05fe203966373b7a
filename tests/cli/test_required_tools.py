"""A compiler that is missing or does not run is told before the long work."""

import stat

import pytest
from tools_at_hand import no_converter, tool

TOO_NEW = "#!/bin/sh\necho 'GLIBC_2.38 not found' >&2; exit 1"


def test_missing_converter(files, monkeypatch, tmp_path):
    no_converter(monkeypatch, tmp_path)
    says = ["no model-converter found: looked at", "install it with", "set MODEL_CONVERTER_PATH to it"]
    files.refuses(target="vgf", says=says)


@pytest.mark.parametrize(
    ("script", "mode", "says"),
    [
        (TOO_NEW, 0o755, "(GLIBC_2.38 not found); install one that does with: pip install ai_ml_sdk_model_converter=="),
        ("no program", 0o755, "does not run: Exec format error"),
        ("#!/bin/sh", stat.S_IRUSR, "is not executable)"),
        ("#!/no/such/shell", 0o755, "does not run: No such file or directory"),
    ],
    ids=["0.10.0", "no program", "not executable", "no interpreter"],
)
def test_converter_that_does_not_run(files, monkeypatch, tmp_path, script, mode, says):
    no_converter(monkeypatch, tmp_path)
    converter = tool(tmp_path / "tools" / "model-converter", script, mode)
    files.refuses(target="vgf", says=[str(converter), says, "MODEL_CONVERTER_PATH"])


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("raise SystemExit(3)", "--version exits with status 3"),
        ("raise ImportError('no libvela')", "(ImportError: no libvela)"),
    ],
)
def test_vela_that_does_not_run(files, tmp_path, monkeypatch, script, says):
    tool(tmp_path / "ethosu" / "__init__.py", script)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    files.refuses(target="ethos-u55-128", says=["Vela does not run: ", says, "pip install ethos-u-vela==5.2.0"])
