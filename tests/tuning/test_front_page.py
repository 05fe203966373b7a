"""The front as text and as a page."""

from dataclasses import replace
from itertools import pairwise
from xml.etree import ElementTree

import pytest

from safe_arm.tuning.front_page import changed, front_page, front_text
from safe_arm.tuning.metrics import Goal
from safe_arm.tuning.quantisation_choice import Choice
from safe_arm.tuning.search import Found
from safe_arm.tuning.trial import Budget, Trial

START = Trial(Choice(), 12.5, 12.5, 1000, "cycles", True)
BEATEN = Trial(Choice(observer="minmax"), 12.0, 12.0, 1000, "cycles", True)
BEST = Trial(Choice(operators={"conv<1>": "int16", "softmax": "float"}), 31.25, 31.25, 2500, "cycles", True)
FAILED = Trial(Choice(16), float("-inf"), None, float("inf"), "", False, "tag0: over the budget")
FOUND = Found(Goal("SQNR in dB", 30.0), (START, BEATEN, FAILED, BEST), BEST, {})
INF = float("inf")


def aiming(at_least=INF, cycles=None, sram=None, found=FOUND):
    """A result of a search for another goal."""
    return replace(found, goal=Goal("SQNR in dB", at_least, budget=Budget(cycles, sram)))


def test_the_text_has_the_front_alone_and_marks_the_recipe():
    lines = front_text(FOUND).splitlines()
    assert [line.split() for line in lines] == [
        ["SQNR", "in", "dB", "cycles", "changed"],
        ["12.5", "1,000", "nothing"],
        ["*", "31.25", "2,500", "int16:", "conv<1>;", "float:", "softmax"],
    ]


def drawing(page):
    return ElementTree.fromstring(page[page.index("<svg") : page.index("</svg>") + 6])


def test_the_page_draws_what_is_proven_and_lists_all():
    page = front_page(FOUND, "net")
    svg = drawing(page)
    assert len(svg.findall("circle")) == 3
    assert len(svg.find("polyline").get("points").split()) == 2
    assert "int16: conv&lt;1&gt;" in page
    assert "tag0: over the budget" in page
    assert page.count("<tr>") == 5
    assert "logarithmic" not in page


def labels(page, anchor, along):
    """The places and texts of an axis."""
    texts = [each for each in drawing(page).findall("text") if each.get("text-anchor") == anchor]
    return [(float(each.get(along)), each.text) for each in texts if each.text[0].isdigit()]


def test_costs_far_apart_are_drawn_on_a_logarithmic_axis_with_labels_apart():
    costs = (120_000, 144_000, 900_000, 15_800_000)
    trials = tuple(Trial(Choice(), 20.0 + i, 20.0 + i, cost, "cycles", True) for i, cost in enumerate(costs))
    page = front_page(aiming(22.5, found=replace(FOUND, trials=trials, best=trials[-1])), "net")
    assert "cycles per inference, logarithmic" in page
    x, y = labels(page, "middle", "x"), labels(page, "end", "y")
    assert [text for _, text in x] == ["200,000", "500,000", "1,000,000", "2,000,000", "5,000,000", "10,000,000"]
    assert all(after - before >= 80 for (before, _), (after, _) in pairwise(x))
    assert all(before - after >= 40 for (before, _), (after, _) in pairwise(y))
    assert 'class="target"></span> at least 22.5' in page, "beside the drawing, where no point covers it"


def test_without_a_target_no_line_is_drawn():
    page = front_page(aiming(), "net")
    assert "at least" not in page
    assert "stroke-dasharray" not in page
    assert "the recipe is the most accurate within the budget" in page


@pytest.mark.parametrize(("cycles", "place"), [(1750, 0.5), (2500, 1.0), (4000, 1.0), (250, 0.0)])
def test_a_budget_of_cycles_is_a_line_at_its_place(cycles, place):
    page = front_page(aiming(cycles=cycles), "net")
    (limit,) = [line for line in drawing(page).findall("line") if line.get("stroke-dasharray")]
    axis = [float(line.get("x1")) for line in drawing(page).findall("line") if line.get("x1") == line.get("x2")]
    assert limit.get("x1") == limit.get("x2")
    assert float(limit.get("x1")) == 90 + place * (720 - 60 - 90)
    assert f'class="limit"></span> at most {cycles:,}' in page
    assert min(axis) < float(limit.get("x1")) <= 660


def test_the_sram_is_listed_where_it_is_limited():
    found = replace(FOUND, trials=(replace(START, sram=20_480), FAILED, replace(BEST, sram=30_720)))
    page = front_page(aiming(30.0, sram=32_000, found=found), "net")
    assert '<th class="number">SRAM</th>' in page
    assert '<td class="number">30,720</td>' in page
    assert "stroke-dasharray" in page, "the target's"
    assert "at most" not in page
    head, start, best = front_text(aiming(sram=32_000, found=found)).splitlines()
    assert head.split()[-3:] == ["cycles", "SRAM", "changed"]
    assert (start.split()[2], best.split()[3]) == ("20,480", "30,720")
    assert "SRAM" not in front_page(aiming(30.0, 1000, found=found), "net")


def test_a_budget_that_nothing_keeps_is_no_target_that_is_not_reached():
    found = replace(FOUND, trials=(START,), best=START, why="nothing is within the budget")
    assert "1 trial, 1 proven; nothing is within the budget." in front_page(aiming(found=found), "net")
    assert "the target is not reached: nothing is" in front_page(found, "net")


def test_many_operators_are_counted():
    choice = Choice(operators={f"conv2d_{i}": "int16" for i in range(12)})
    assert changed(choice).endswith(" and 4 more")
    assert changed(Choice()) == "nothing"
