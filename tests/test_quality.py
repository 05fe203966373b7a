"""Quantisation keeps a float net as well as recorded, and the yardstick is what it says (`make quality`)."""

import json

import pytest
import torch
from interpreter import ROOT
from small import Lambda
from spying import raising

from benchmarks.quality.composites import ENTRIES
from benchmarks.quality.ideal import ideal
from benchmarks.quality.judge import Figure, figures
from benchmarks.quality.lines import lines, page
from benchmarks.quality.subjects import Entry

RECORDED = json.loads((ROOT / "tests" / "data" / "quality-1.5.json").read_text())
FAST = (
    "b/softmax", "b/softmax-1000", "b/log-softmax", "b/layer-norm", "b/group-norm", "b/var", "b/cosine-similarity",
    "b/avg-pool2d", "b/mean", "b/cat-small-and-large", "b/gelu", "b/sdpa",
)  # fmt: skip


@pytest.mark.parametrize("entry", [entry for entry in ENTRIES if entry.name in FAST], ids=lambda entry: entry.name)
def test_ours_is_no_worse_than_recorded(entry):
    (figure,) = figures(entry, {"ours": ""})
    assert figure.text == ""
    assert figure.sqnr >= RECORDED[entry.name]["ours"] - 0.5


def test_the_page_has_every_recorded_row():
    page = (ROOT / "docs" / "quality.md").read_text().replace("\\", "")
    assert [row for row in RECORDED if f"| {row} |" not in page] == []


def test_the_page_counts_the_rows_of_its_table_and_the_table_is_one():
    failed = Figure("b/b", "ours", "", None, "left out: random")
    measured = [Figure("b/a", "ideal", "", 30.0), Figure("b/a", "ours", "", 29.0), failed]
    text = page(lines([Entry("b/a", lambda: None), Entry("b/b", lambda: None)], measured))
    assert "the table compares 1 rows" in text
    assert "\n\n| row | ideal | ours | stock | lost |" in text
    assert "\n\n* b/b: left out: random" in text
    assert "\n| b/a | 30.0 | 29.0 |  | 1.0 |  |\n" in text


def test_ideal_quantises_no_value_that_only_moves_and_lets_infinity_pass():
    x = torch.linspace(-1, 1, 8).reshape(2, 4)
    masked = Lambda(lambda m, x: x.flip(0).transpose(0, 1) + torch.tensor([0.0, -torch.inf]))
    net = torch.export.export(masked, (x,)).module(check_guards=False)
    result = ideal(net, [(x,)])(x)
    assert result[:, 1].isinf().all()
    rounded = result[:, 0] - x.flip(0)[0]
    assert 0 < rounded.abs().max() < 2 / 255


def test_a_mask_that_ruins_the_ideal_as_well_is_no_excuse():
    entries = [Entry("c/none", lambda: None), Entry("c/masked", lambda: None, beside="c/none")]
    measured = [
        Figure("c/none", "ideal", "", 30.0), Figure("c/none", "ours", "", 29.0),
        Figure("c/masked", "ideal", "", 1.0), Figure("c/masked", "ours", "", 2.0),
    ]  # fmt: skip
    first, second = lines(entries, measured)
    assert (first.row, first.lost, first.mask_costs) == ("c/masked", 28.0, {"ideal": 29.0, "ours": 27.0})
    assert second.lost == 1.0


def test_an_exception_is_the_text_of_its_row():
    (figure,) = figures(Entry("b/broken", raising(ValueError("no such net"))), {"ours": ""})
    assert figure.text == "float net: ValueError: no such net"
