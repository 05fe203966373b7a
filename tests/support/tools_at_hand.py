"""Tools that are there in another way than the machine has them, or not at all."""

import sys
from pathlib import Path


def tool(path: Path, script: str, mode: int = 0o755) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(script)
    path.chmod(mode)
    return path


def no_converter(monkeypatch, folder: Path) -> None:
    """Leave an interpreter with nothing beside it, and a PATH without a model-converter: ``folder / "tools"``."""
    (folder / "bin").mkdir()
    (folder / "bin" / "python").symlink_to(sys.executable)
    monkeypatch.setattr(sys, "executable", str(folder / "bin" / "python"))
    monkeypatch.setenv("PATH", str(folder / "tools"))
    monkeypatch.delenv("MODEL_CONVERTER_PATH", raising=False)
