"""The front as text and as a page."""

from itertools import pairwise
from xml.etree import ElementTree

from safe_arm.tuning.front_page import changed, front_page, front_text
from safe_arm.tuning.quantisation_choice import Choice
from safe_arm.tuning.search import Found
from safe_arm.tuning.trial import Trial

START = Trial(Choice(), 12.5, 12.5, 1000, "cycles", True)
BEATEN = Trial(Choice(observer="minmax"), 12.0, 12.0, 1000, "cycles", True)
BEST = Trial(Choice(operators={"conv<1>": "int16", "softmax": "float"}), 31.25, 31.25, 2500, "cycles", True)
FAILED = Trial(Choice(16), float("-inf"), None, float("inf"), "", False, "tag0: over the budget")
FOUND = Found((START, BEATEN, FAILED, BEST), BEST, True, {})


def test_the_text_has_the_front_alone_and_marks_the_recipe():
    lines = front_text(FOUND, "SQNR in dB").splitlines()
    assert [line.split() for line in lines] == [
        ["SQNR", "in", "dB", "cycles", "changed"],
        ["12.5", "1,000", "nothing"],
        ["*", "31.25", "2,500", "int16:", "conv<1>;", "float:", "softmax"],
    ]


def drawing(page):
    return ElementTree.fromstring(page[page.index("<svg") : page.index("</svg>") + 6])


def test_the_page_draws_what_is_proven_and_lists_all():
    page = front_page(FOUND, "SQNR in dB", 30.0, "net")
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
    page = front_page(Found(trials, trials[-1], True, {}), "SQNR in dB", 22.5, "net")
    assert "cycles an inference, logarithmic" in page
    x, y = labels(page, "middle", "x"), labels(page, "end", "y")
    assert [text for _, text in x] == ["200,000", "500,000", "1,000,000", "2,000,000", "5,000,000", "10,000,000"]
    assert all(after - before >= 80 for (before, _), (after, _) in pairwise(x))
    assert all(before - after >= 40 for (before, _), (after, _) in pairwise(y))
    assert 'class="target"></span> at least 22.5' in page, "beside the drawing, where no point covers it"


def test_without_a_target_no_line_is_drawn():
    page = front_page(FOUND, "SQNR in dB", float("inf"), "net")
    assert "at least" not in page
    assert "stroke-dasharray" not in page
    assert "the recipe is the most accurate within the budget" in page


def test_one_trial_is_drawn_in_the_middle():
    assert "<circle" in front_page(Found((START,), START, True, {}), "SQNR in dB", 12.5, "net")


def test_many_operators_are_counted():
    choice = Choice(operators={f"conv2d_{i}": "int16" for i in range(12)})
    assert changed(choice).endswith(" and 4 more")
    assert changed(Choice()) == "nothing"
