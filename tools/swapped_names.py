"""Run ExecuTorch's own export scripts and notebooks with its partitioner and quantiser swapped for ours.

python tools/swapped_names.py [FILE...]

A file is a notebook, run up to the cell that saves the program and without its shell cells, or a test of pytest's.
Without a file it is what the installed ExecuTorch carries of its public API's scenarios for VGF and Ethos-U. Everything
runs in an empty folder; each has to end well and to leave a program whose delegates are ours.
"""

import ast
import json
import os
import re
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

#: What a script imports from ExecuTorch, and from ``safe_arm`` instead.
SWAPS = {
    "VgfPartitioner": "SafeArmPartitioner",
    "EthosUPartitioner": "SafeArmPartitioner",
    "VgfQuantizer": "SafeVgfQuantizer",
    "EthosUQuantizer": "SafeEthosUQuantizer",
}
#: What the partitioner marks its delegates with.
MARKER = b"safe_arm"


class _Swap(ast.NodeTransformer):
    def visit_ImportFrom(self, node: ast.ImportFrom) -> list[ast.ImportFrom]:
        ours = [alias for alias in node.names if alias.name in SWAPS]
        if not ours:
            return [node]
        kept = [alias for alias in node.names if alias not in ours]
        safe = ast.ImportFrom("safe_arm", [ast.alias(SWAPS[alias.name], alias.asname) for alias in ours], 0)
        return [safe, *([ast.ImportFrom(node.module, kept, node.level)] if kept else [])]

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(SWAPS.get(node.id, node.id), node.ctx)


def swapped(source: str) -> str:
    """Return a script with ExecuTorch's names for the partitioners and quantisers swapped for ours."""
    return ast.unparse(ast.fix_missing_locations(_Swap().visit(ast.parse(source))))


def export_cells(notebook: str) -> str:
    """Return the code of a notebook's cells up to the one that saves the program, shell cells left out."""
    code: list[str] = []
    for cell in json.loads(notebook)["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] == "code" and not text.lstrip().startswith("%%"):
            code.append(text)
            if "save_pte_program(" in text:
                break
    return "\n".join(code)


def scenarios() -> list[Path]:
    """Return the scenarios of ExecuTorch's public API that its wheel carries."""
    package = find_spec("executorch")
    places = package.submodule_search_locations if package else None
    folders = [Path(place) / "backends" / "arm" / "test" / "public_api_bc" for place in places or ()]
    return sorted(path for folder in folders for path in folder.glob("test_*.py"))


def run(path: Path, folder: Path) -> str:
    """Run a file with the names swapped in a folder, and return what is wrong; empty if nothing is."""
    notebook = path.suffix == ".ipynb"
    source = export_cells(path.read_text()) if notebook else path.read_text()
    if not re.search(rf"\b({'|'.join(SWAPS)})\b", source):
        return f"has none of {', '.join(SWAPS)}"
    script = folder / f"{path.stem}.py"
    script.write_text(swapped(source))
    pytest = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "--basetemp", str(folder / "tmp")]
    command = [sys.executable, *([] if notebook else pytest), script.name]
    # The compilers are looked for on PATH, and the environment need not be activated.
    environment = {**os.environ, "PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        return f"ended with status {done.returncode}:\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
    programs = [each.read_bytes() for each in folder.rglob("*.pte") if not each.is_symlink()]
    if not programs:
        return "wrote no .pte"
    return "" if all(MARKER in each for each in programs) else "its program has a delegate that is not ours"


def main(arguments: list[str]) -> int:
    """Run the files, or the wheel's scenarios; return 0 if nothing is wrong with any."""
    status = 0
    for path in [Path(each) for each in arguments] or scenarios():
        with tempfile.TemporaryDirectory(prefix="swapped-") as name:
            wrong = run(path, Path(name))
        print(f"{path.name}: {wrong or 'exported by safe_arm'}", flush=True)
        status = status or int(bool(wrong))
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
