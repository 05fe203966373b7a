"""The notebook runs in a real kernel whose environment is not activated."""

import os
import sys
from pathlib import Path

import pytest
from interpreter import ROOT

nbclient = pytest.importorskip("nbclient", reason="the older lanes have no Jupyter")
nbformat = pytest.importorskip("nbformat", reason="the older lanes have no Jupyter")

NOTEBOOK = ROOT / "examples" / "vgf.ipynb"


@pytest.fixture(scope="module")
def executed(tmp_path_factory):
    """The folder the notebook ran in, and the notebook with its outputs."""
    folder = tmp_path_factory.mktemp("notebook")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    own = str(Path(sys.executable).parent)
    path = os.pathsep.join(place for place in os.environ["PATH"].split(os.pathsep) if place != own)
    kept = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "MODEL_CONVERTER_PATH")}
    client = nbclient.NotebookClient(
        notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    )
    client.execute(env={**kept, "PATH": path, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"})
    return folder, notebook


def output_of(notebook, cell):
    (found,) = (each for each in notebook.cells if each.id == cell)
    return found.outputs


def test_it_is_kept_without_outputs():
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    assert all(not cell.get("outputs") and cell.get("execution_count") is None for cell in notebook.cells)


def test_everything_is_delegated_to_vgf(executed):
    folder, notebook = executed
    program = (folder / "skipnet.pte").read_bytes()
    assert program[4:8] == b"ET12"
    assert b"VgfBackend" in program
    printed = "".join(output.get("text", "") for output in output_of(notebook, "lower"))
    assert "DELEGATED" not in printed
    assert "demoted" not in printed


def test_the_report_is_shown(executed):
    (shown,) = output_of(executed[1], "report")
    assert shown.output_type == "execute_result"
    assert shown.data["text/plain"].startswith("float net       ")
    assert "\ndelegates       1\noperators       " in shown.data["text/plain"]
    assert shown.data["text/html"].startswith("<table>")
    assert ">The full report</a>" in shown.data["text/html"]
