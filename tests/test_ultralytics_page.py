"""The page about Ultralytics prints what it says, and decodes boxes as it says (`make test-architectures`)."""

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import doc_pages
import first_hour
import pytest
import torch
from interpreter import ROOT

PAGE = ROOT / "docs" / "how-to" / "ultralytics.md"
CELLS = 8 * 8 + 4 * 4 + 2 * 2


@pytest.fixture(scope="module")
def detections():
    """The page's own post-processing, without Ultralytics, for images of 64 x 64."""
    tree = ast.parse((ROOT / "examples" / "ultralytics_yolo.py").read_text())
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    kept = ast.Module([functions["overlap"], functions["detections"]], type_ignores=[])
    names = {"torch": torch, "SIZE": 64}
    exec(compile(kept, "ultralytics_yolo.py", "exec"), names)
    return names["detections"]


def raw_outputs(cells):
    """Raw outputs with a box of two strides to each side around some cells, by the cell's score."""
    boxes, scores = torch.zeros(1, 4, 16, CELLS), torch.full((1, 80, CELLS), -10.0)
    boxes[:, :, 2] = 100.0
    for cell, score in cells.items():
        scores[0, 7, cell] = score
    return boxes.view(1, 64, CELLS), scores


@pytest.mark.parametrize(
    ("cell", "box"),
    [(0, (-12, -12, 20, 20)), (1, (-4, -12, 28, 20)), (8, (-12, -4, 20, 28)), (80, (-48, -48, 80, 80))],
    ids=["first", "to the right", "below", "coarsest"],
)
def test_a_box_lies_around_its_cell(detections, cell, box):
    assert detections(*raw_outputs({cell: 3.0})).tolist() == [pytest.approx(box)]


def test_of_boxes_that_overlap_the_most_probable_is_kept(detections):
    near, far = detections(*raw_outputs({0: 2.0, 1: 3.0, 63: 1.0})).tolist()
    assert near == pytest.approx((-4, -12, 28, 20))
    assert far == pytest.approx((44, 44, 76, 76))


def test_what_is_improbable_is_no_box(detections):
    assert detections(*raw_outputs({})).shape == (0, 4)


#: The rows of the table of sizes, each with where the script prints the figure.
FIGURES = {
    "delegates": r" delegates (\d+) ",
    "operators delegated": r" operators (\d+ of \d+) delegated",
    "verified on": r" tried (\d+ sets of inputs) ",
    "verified": r" quantised graph: (exact|operator by operator)",
    "Vela's cycles": r" tag0: ([\d,]+) cycles",
    "SRAM, bytes": r" ([\d,]+) bytes of SRAM ",
    "DRAM, bytes": r" ([\d,]+) bytes of DRAM ",
    "planned memory, bytes": r" planned ([\d,]+) bytes",
    "`.pte`, bytes": r" flash ([\d,]+) bytes of \.pte",
}


def table(size):
    """The table's column for a size."""
    rows = re.findall(r"^\| (.+?) \| (.+?) \| (.+?) \|$", PAGE.read_text(), re.MULTILINE)
    sizes = dict(zip(("64", "256"), zip(*(row[1:] for row in rows), strict=True), strict=True))
    return dict(zip((row[0] for row in rows), sizes[size], strict=True))


def figures(printed):
    """The figures of the table in what the script prints."""
    text = " ".join(printed.split())
    return {name: re.search(pattern, text)[1] for name, pattern in FIGURES.items()}


def test_the_table_has_the_figures_of_the_page_for_64_x_64():
    column = table("64")
    printed = next(text for text in PAGE.read_text().split("```text\n") if text.startswith("float net"))
    assert {name: column[name] for name in FIGURES} == figures(printed)
    assert column["off at the output by ties"] == "0"


@pytest.mark.architectures
def test_the_table_has_the_figures_of_256_x_256(tmp_path):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, ROOT / "examples" / "ultralytics_yolo.py", "256"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    column = table("256")
    assert {name: column[name] for name in FIGURES} == figures(done.stdout)
    assert "ties of " in done.stdout


def test_every_fence_is_right():
    assert doc_pages.faults(PAGE.read_text()) == []


@pytest.mark.architectures
def test_the_page_prints_what_it_says(tmp_path, monkeypatch):
    # With random weights a sum that another processor rounds otherwise changes boxes, and decides ties of silu.
    noise = ((r"\d+\.\d dB|sample \d+", "N"), (r"\d+ boxes in float, \d+ in int8, \d+", "N boxes, N"))
    ties = (r"graph: (exact|operator by\n +operator; ties of silu [^\n]*\n +\S+)", "graph: exact but for ties")
    monkeypatch.setattr(first_hour, "VARIES", (*first_hour.VARIES, *noise, ties))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    followed = doc_pages.follow(PAGE.read_text(), tmp_path, Path(sys.executable).parent)
    assert followed.wrong == []
