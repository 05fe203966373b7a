import pytest
from browser import Opened, chromium

from safe_arm.report.files import write_report


@pytest.fixture(scope="module")
def browser():
    with chromium() as started:
        yield started


@pytest.fixture
def opened(browser, tmp_path):
    """Open a report, and afterwards see that nothing was asked for and nothing went wrong."""
    pages = []

    def open_report(report, title="", scheme="light"):
        write_report(report, tmp_path / "report.html", title)
        pages.append(Opened(browser, tmp_path / "report.html", scheme))
        return pages[-1]

    yield open_report
    for each in pages:
        assert [url for url in each.asked if not url.startswith(("file://", "blob:"))] == []
        assert each.errors == []
        each.context.close()
