"""docs/output.md tells how to silence a script's libraries, and it works."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_an_example_with_the_lines_of_the_docs_prints_nothing(tmp_path):
    (lines,) = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs/output.md").read_text(), re.DOTALL | re.MULTILINE)
    script = (ROOT / "examples/vgf.py").read_text().replace("print(partitioner.report)", "")
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    done = subprocess.run(
        [sys.executable, "-c", lines + script],
        cwd=tmp_path,
        env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
