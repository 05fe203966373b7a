"""Stock's result stands in a column beside those of the policies."""

import re
from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from safe_arm.core.record import NodeVerdict, Reason, Report, Verification
from safe_arm.report.stock_column import StockResult
from safe_arm.report.terminal import print_side_by_side

CONV = NodeVerdict("conv", "aten::convolution", "tag0", macs=10)
RELU = NodeVerdict("relu", "aten::relu", None, (Reason("not implied", "check", "S1"),))
PROOF = Verification("tag0", True, "", 10, 0.0, 6, 0.25)
REPORTS = {"reject": Report((CONV, RELU), 1, 1, verifications=(PROOF,)), "propagate": Report((RELU,), 0, 0)}
WRONG = StockResult("wrong", "", 2, 4, 4, 1.0, 1, 84.0, 1234, ("tag0: aten::relu: differs by up to 84 codes",))


def printed(stock, reports=REPORTS):
    stream = StringIO()
    console = Console(file=stream, force_terminal=True, width=80, color_system=None)
    print_side_by_side(reports, console, stock)
    return stream.getvalue()


def test_it_is_the_first_column_and_the_verdict_the_first_row():
    lines = printed(WRONG).splitlines()
    assert [re.split(r" {2,}", line.strip()) for line in lines] == [
        ["stock", "reject", "propagate"],
        ["result", "wrong", "verified", "on the CPU"],
        ["largest error", "84 codes", "none", "-"],
        ["delegates", "2", "1", "0"],
        ["operators", "4 of 4", "1 of 2", "0 of 1"],
        ["MACs", "100.0 %", "100.0 %", "none"],
        ["verified", "1 of 2", "1 of 1", "-"],
        ["Vela cycles", "1,234", "-", "-"],
        ["refused", "-", "1", "1"],
        ["demoted", "-", "0", "0"],
        ["stock", "tag0: aten::relu: differs by up to 84 codes"],
    ]


@pytest.mark.parametrize(("macs", "cells"), [(10, "90.0 % +100.0 %"), (0, "none +none")])
def test_of_a_net_without_macs_no_column_gives_a_share(macs, cells):
    report = Report((replace(CONV, macs=macs), RELU), 1, 1)
    text = printed(replace(WRONG, share_delegated=0.9), {"reject": report})
    assert re.search(rf"^MACs +{cells} *$", text, re.MULTILINE)


def test_a_crash_says_what_stock_raises():
    text = printed(StockResult("crashes", "cannot lower for tosa: ValueError: no"))
    assert re.search(r"^result +crashes +verified +on the CPU *$", text, re.MULTILINE)
    assert re.search(r"^delegates +- +1 +0 *$", text, re.MULTILINE)
    assert text.endswith("stock           cannot lower for tosa: ValueError: no\n")


def test_it_fits_80_columns():
    error = "cannot quantise: ValueError: " + "word " * 50
    assert max(map(len, printed(StockResult("crashes", error)).splitlines())) <= 80
