"""The examples run, and with the stock class names put back they are ExecuTorch's own script."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
STOCK = {
    "vgf": ("VgfPartitioner", "VgfQuantizer", "executorch.backends.arm.vgf"),
    "ethos_u": ("EthosUPartitioner", "EthosUQuantizer", "executorch.backends.arm.ethosu"),
}


def run(script: Path, directory: Path):
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    root = str(EXAMPLES.parent)
    env = {**os.environ, "PATH": path, "PYTHONPATH": root}
    return subprocess.run(
        [sys.executable, str(script)], cwd=directory, env=env, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("name", STOCK)
def test_it_writes_a_program(name, tmp_path):
    result = run(EXAMPLES / f"{name}.py", tmp_path)
    assert result.returncode == 0, result.stderr[-2000:]
    (program,) = tmp_path.glob("*.pte")
    assert program.read_bytes()[4:8] == b"ET12"


@pytest.mark.parametrize("name", STOCK)
def test_the_diff_against_stock_is_the_two_class_names(name):
    partitioner, quantizer, module = STOCK[name]
    ours = (EXAMPLES / f"{name}.py").read_text()
    imports = next(line for line in ours.splitlines() if line.startswith("from safe_arm import"))
    stock = ours.replace(
        imports,
        f"from {module} import {partitioner}\nfrom executorch.backends.arm.quantizer import {quantizer}",
    )
    stock = stock.replace("SafeArmPartitioner", partitioner).replace(f"Safe{quantizer}", quantizer)
    assert "afe" not in stock
    names = {n.id for n in ast.walk(ast.parse(stock)) if isinstance(n, ast.Name)}
    ours_names = {n.id for n in ast.walk(ast.parse(ours)) if isinstance(n, ast.Name)}
    assert ours_names - names == {"SafeArmPartitioner", f"Safe{quantizer}"}
