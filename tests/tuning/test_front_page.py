"""The front as text and as a page."""

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


def test_the_page_draws_what_is_proven_and_lists_all():
    page = front_page(FOUND, "SQNR in dB", 30.0, "net")
    svg = ElementTree.fromstring(page[page.index("<svg") : page.index("</svg>") + 6])
    assert len(svg.findall("circle")) == 3
    assert len(svg.find("polyline").get("points").split()) == 2
    assert "int16: conv&lt;1&gt;" in page
    assert "tag0: over the budget" in page
    assert page.count("<tr>") == 5


def test_one_trial_is_drawn_in_the_middle():
    page = front_page(Found((START,), START, True, {}), "SQNR in dB", 12.5, "net")
    assert "<circle" in page


def test_many_operators_are_counted():
    choice = Choice(operators={f"conv2d_{i}": "int16" for i in range(12)})
    assert changed(choice).endswith(" and 4 more")
    assert changed(Choice()) == "nothing"
