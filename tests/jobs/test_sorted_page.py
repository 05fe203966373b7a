"""A click on a heading sorts the rows of the page, by number or by name; a second click turns them round."""

import pytest
from browser import SHOTS, chromium

from safe_arm.jobs.row import Row
from safe_arm.jobs.rows_table import index

pytestmark = pytest.mark.browser


def row(name, target, delegated, cycles, sqnr, **more):
    figures = {
        "delegates": 2, "operators": 40, "operators_delegated": delegated, "share_delegated": delegated / 40,
        "refused": 0, "demoted": 0, "verified": 2, "vela_cycles": cycles, "sqnr_db": sqnr,
    }  # fmt: skip
    fields = {"exit_status": 0, "error": "", "result": True, "figures": figures} | more
    labels = {"program": name, "target": target}
    return Row(name, labels, ["safe-arm"], "", tries=1, seconds=2.5, files={f"{name}.html": ""}, **fields)


ROWS = [
    row("net2", "ethos-u55-128", 9, 1_234_567, 38.2),
    row("net10", "ethos-u55-128", 40, 98_765, 200.0),
    row("Alpha", "vgf", 31, None, None),
    row("broken", "vgf", 0, None, None, exit_status=1, error="no program", result=False, figures={}),
]


@pytest.fixture(params=["light", "dark"])
def page(request, tmp_path):
    (tmp_path / "index.html").write_text(index(ROWS, 4, "safe-arm check"))
    with chromium() as browser:
        view = {"color_scheme": request.param, "viewport": {"width": 1100, "height": 300}}
        opened = browser.new_context(offline=True, **view).new_page()
        opened.goto((tmp_path / "index.html").as_uri())
        yield opened
        SHOTS.mkdir(parents=True, exist_ok=True)
        opened.screenshot(path=SHOTS / f"rows-{request.param}.png")


def order(page):
    return page.locator("tbody tr td:first-child").all_inner_texts()


def click(page, heading):
    page.get_by_role("button", name=heading, exact=True).click()
    return order(page)


def test_it_is_sorted_by_a_click(page):
    assert order(page) == ["net2", "net10", "Alpha", "broken"]
    assert click(page, "program") == ["Alpha", "broken", "net2", "net10"]
    assert click(page, "program") == ["net10", "net2", "broken", "Alpha"]
    assert click(page, "operators") == ["net2", "Alpha", "net10", "broken"]
    assert click(page, "SQNR")[:2] == ["net2", "net10"]
    assert click(page, "cycles")[:2] == ["net10", "net2"]
    assert click(page, "cycles") == ["net2", "net10", "Alpha", "broken"]
    assert page.locator("th[aria-sort]").all_inner_texts() == ["cycles"]
    assert page.locator("th[aria-sort]").get_attribute("aria-sort") == "descending"


def test_numbers_stand_on_the_right(page):
    align = "element => getComputedStyle(element).textAlign"
    cells = page.locator("tbody tr:first-child td").all()
    headings = page.locator("th").all_inner_texts()
    on_the_right = {name for name, cell in zip(headings, cells, strict=True) if cell.evaluate(align) == "right"}
    numbers = {"operators", "delegates", "delegated", "demoted", "verified", "SQNR", "cycles", "s"}
    assert on_the_right == numbers


def test_a_narrow_window_shows_every_column(page):
    page.set_viewport_size({"width": 800, "height": 300})
    assert page.locator(".rows").evaluate("table => table.scrollWidth - table.clientWidth") == 0
    assert page.locator("th", has_text="delegated").get_attribute("title").startswith("Share of")
