"""``make demo`` runs to its end and writes its picture."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_every_safe_export_is_right_and_the_picture_is_drawn(tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-m", "demo"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, (
        f"{done.stdout}\n{done.stderr[-2000:]}\n{(tmp_path / 'out/demo.log').read_text()[-2000:]}"
    )
    assert "Picture: out/demo.png" in done.stdout
    assert (tmp_path / "out" / "demo.png").read_bytes().startswith(b"\x89PNG")
