"""The page as axe sees it, light and dark: nothing to fix, in any state a reader brings it into."""

from dataclasses import replace

import pytest
from browser import Opened
from invented_accuracy import measured
from two_methods import BOTH

from benchmarks.reports import large_report
from safe_arm.core.record import Subject
from safe_arm.report.files import write_report

pytestmark = pytest.mark.browser


def rich_report():
    """Return a report with all there is to show: cycles, several delegates, fallbacks of every kind."""
    report = large_report(120, every=4)
    versions = {"safe_arm": "0.1.0", "torch": ""}
    subject = replace(report.subject, model="Net", versions=versions)
    accuracy, verdicts = measured(report.verdicts)
    return replace(
        report, verdicts=verdicts, accuracy=accuracy, subject=subject, cycles=dict.fromkeys(report.delegates, 1_234_567)
    )


@pytest.fixture(params=["light", "dark"])
def opened(request, browser, tmp_path):
    pages = []

    def open_report(report, title=""):
        write_report(report, tmp_path / "report.html", title)
        pages.append(Opened(browser, tmp_path / "report.html", request.param))
        return pages[-1]

    yield open_report
    for each in pages:
        each.context.close()


def findings(page):
    """Return what axe finds, each with where and why, so that a failure says what to fix."""
    from axe_playwright_python.sync_playwright import Axe

    found = Axe().run(page.page).response["violations"]
    return [(each["id"], node["target"], node.get("failureSummary")) for each in found for node in each["nodes"]]


def test_the_page_as_it_opens(opened):
    page = opened(rich_report(), "net")
    assert findings(page) == []


def test_everything_unfolded_and_an_operator_shown(opened):
    page = opened(rich_report(), "net")
    page.page.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true; })")
    page.page.locator(".reason .node").first.click()
    assert findings(page) == []


def test_a_search_a_reason_and_a_delegate(opened):
    page = opened(rich_report(), "net")
    page.page.get_by_label("Search").fill("relu")
    assert findings(page) == []
    page.page.locator(".why").first.click()
    assert findings(page) == []
    page.page.locator("[data-delegate]").first.click()
    assert findings(page) == []


def test_two_methods(opened):
    assert findings(opened(BOTH)) == []


def test_a_report_of_nothing(opened):
    empty = replace(large_report(9), verdicts=(), verifications=(), applied=(), subject=Subject())
    assert findings(opened(empty)) == []


@pytest.mark.parametrize("colour", ["0", "1"])
def test_coloured_by_accuracy(opened, colour):
    page = opened(rich_report(), "net")
    page.page.get_by_label("colour").select_option(colour)
    page.drawn(2)
    assert findings(page) == []


def test_a_small_screen(opened):
    page = opened(rich_report(), "net")
    page.page.set_viewport_size({"width": 400, "height": 800})
    assert findings(page) == []
    assert page.page.evaluate("document.documentElement.scrollWidth") <= 400


def test_the_test_can_fail(opened):
    page = opened(rich_report(), "net")
    page.page.add_style_tag(content=".weight { color: #ccc !important; } aside { background: #ddd !important; }")
    assert {each[0] for each in findings(page)} == {"color-contrast"}
