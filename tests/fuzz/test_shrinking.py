"""A failing case becomes small and still fails alike; its script is a test that says so."""

import runpy

import pytest

from tests.fuzz.cases import Case, Config, Input, one_line
from tests.fuzz.outcome import Outcome
from tests.fuzz.properties import run
from tests.fuzz.scripts import script_of
from tests.fuzz.shrinking import smallest

SOURCE = """class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.m0 = nn.Conv2d(3, 4, 3)
        self.register_buffer("m1", torch.rand([4]) * 2 - 1)

    def forward(self, x0, x1):
        v0 = self.m0(x0)
        v1 = torch.relu(v0)
        v2 = torch.floor(v1 * 2)
        v3 = v2.permute(0, 2, 3, 1) + self.m1
        v4, v5 = torch.split(v3, 2, 3)
        return v3, x1, v5
"""
CASE = Case(SOURCE, (Input((1, 3, 6, 6)), Input((2, 2))), Config("INT", "a16w8", io=True, methods=2), 7)


def test_what_does_not_matter_goes():
    small = smallest(CASE, lambda case: "torch.floor" in case.source and case.config.numbers == "a16w8")
    assert small.source.splitlines() == [
        "class Net(nn.Module):",
        "",
        "    def __init__(self):",
        "        super().__init__()",
        "",
        "    def forward(self, v1):",
        "        v2 = torch.floor(v1 * 2)",
        "        return (v2,)",
    ]
    assert small.inputs == (Input((1, 4, 4, 4)),)
    assert small.config == Config("INT", "a16w8")


def test_what_cannot_be_made_smaller_stays():
    assert smallest(CASE, lambda case: False) == CASE
    broken = Case("raise ValueError\n", CASE.inputs)
    assert smallest(broken, lambda case: False) == broken


@pytest.mark.filterwarnings("ignore")
def test_the_script_runs_the_case(tmp_path):
    case = Case(one_line("x0 + 1"), (Input((1, 3)),), Config("INT+FP"))
    path = tmp_path / "test_case.py"
    path.write_text(script_of(case, Outcome("died", "lower", 'an "error"\\'), "seed 1, case 2"))
    script = runpy.run_path(str(path))
    assert script["CASE"] == case
    assert script["__doc__"] == "seed 1, case 2: died in lower: an 'error'/"
    script["test_it_is_right"]()
    assert run(case).verdict == "right"
