"""Every mode in which the backend is used: ours is right, stock does what is on record, the page shows both."""

import json
from importlib.metadata import version
from pathlib import Path

import pytest

if not version("executorch").startswith("1.5"):
    pytest.skip("the record is of ExecuTorch 1.5", allow_module_level=True)

from measure_modes import DOCS, RIGHT, outcome, page
from modes import MODES

RECORD = json.loads((Path(__file__).parent / "data" / "modes-1.5.json").read_text())
ROWS = [pytest.param(name, net, id=f"{name}-{net.__name__}") for name, mode in MODES.items() for net in mode.nets]


def on_record(name, net, by):
    return RECORD[name][f"{net.__name__}, {by}"]


@pytest.mark.parametrize(("name", "net"), ROWS)
@pytest.mark.filterwarnings("ignore::safe_arm.core.errors.DemotionWarning")
def test_ours_does_what_is_on_record(name, net):
    assert outcome(MODES[name], net, safe=True) == on_record(name, net, "safe_arm")


@pytest.mark.parametrize(("name", "net"), ROWS)
def test_ours_is_right_on_record(name, net):
    result = on_record(name, net, "safe_arm")["outcome"]
    assert result == RIGHT or ("int16 activations" in name and result == "1 code off"), "what tolerances.py allows"


@pytest.mark.parametrize(("name", "net"), ROWS)
def test_stock_does_what_is_on_record(name, net):
    assert outcome(MODES[name], net, safe=False) == on_record(name, net, "stock")


@pytest.mark.parametrize(("name", "net"), ROWS)
def test_what_stock_delegates_rightly_ours_delegates_as_well(name, net):
    stock, ours = (on_record(name, net, by) for by in ("stock", "safe_arm"))
    if stock["outcome"] == RIGHT:
        assert ours["delegated"] == stock["delegated"]


def test_the_page_is_the_record():
    assert list(RECORD) == list(MODES)
    assert DOCS.read_text() == page(RECORD)
