"""docs/output.md tells how to silence a script's libraries, and it works."""

import re

from interpreter import ROOT, python


def test_an_example_with_the_lines_of_the_docs_prints_nothing(tmp_path):
    (lines,) = re.findall(r"^```python\n(.*?)^```", (ROOT / "docs/output.md").read_text(), re.DOTALL | re.MULTILINE)
    script = (ROOT / "examples/vgf.py").read_text().replace("print(partitioner.report)", "")
    done = python("-c", lines + script, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
