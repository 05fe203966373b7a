"""The page as axe sees it, light and dark: nothing to fix, in any state a reader brings it into."""

from dataclasses import replace
from functools import partial

import pytest
from invented_accuracy import measured
from two_methods import BOTH

from benchmarks.reports import large_report
from safe_arm.core.record import Subject

pytestmark = pytest.mark.browser


@pytest.fixture
def page(shown):
    """A report with all there is to show: cycles, several delegates, fallbacks of every kind."""
    report = large_report(120, every=4)
    subject = replace(report.subject, model="Net", versions={"safe_arm": "0.1.0", "torch": ""})
    accuracy, verdicts = measured(report.verdicts)
    cycles = dict.fromkeys(report.delegates, 1_234_567)
    return shown(replace(report, verdicts=verdicts, accuracy=accuracy, subject=subject, cycles=cycles), "net")


@pytest.fixture(params=["light", "dark"])
def shown(request, opened):
    """Open a report, light and dark."""
    return partial(opened, scheme=request.param)


def findings(page):
    """Return what axe finds, each with where and why, so that a failure says what to fix."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page.page).response["violations"]
    return [(each["id"], node["target"], node.get("failureSummary")) for each in found for node in each["nodes"]]


def test_the_page_as_it_opens(page):
    assert findings(page) == []


def test_everything_unfolded_and_an_operator_shown(page):
    page.page.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true; })")
    page.page.locator(".reason .node").first.click()
    assert findings(page) == []


def test_a_search_a_reason_and_a_delegate(page):
    page.page.get_by_label("Search").fill("relu")
    assert findings(page) == []
    page.page.locator(".why").first.click()
    assert findings(page) == []
    page.page.locator("[data-delegate]").first.click()
    assert findings(page) == []


def test_two_methods_and_a_report_of_nothing(shown):
    assert findings(shown(BOTH)) == []
    empty = replace(large_report(9), verdicts=(), verifications=(), applied=(), subject=Subject())
    assert findings(shown(empty)) == []


@pytest.mark.parametrize("colour", ["0", "1"])
def test_coloured_by_accuracy(page, colour):
    page.page.get_by_label("colour").select_option(colour)
    page.drawn(2)
    assert findings(page) == []


def test_a_small_screen(page):
    page.page.set_viewport_size({"width": 400, "height": 800})
    assert findings(page) == []
    assert page.page.evaluate("document.documentElement.scrollWidth") <= 400


def test_the_test_can_fail(page):
    page.page.add_style_tag(content=".weight { color: #ccc !important; } aside { background: #ddd !important; }")
    assert {each[0] for each in findings(page)} == {"color-contrast"}
