"""Pictures of what ``safe-arm check`` prints about a U-Net at 80 and 120 columns, light and dark, with all of it."""

import io

import pytest
import torch
from browser import SHOTS
from lowering import lower_safely, quantize, tosa
from rich.console import Console
from rich.terminal_theme import DEFAULT_TERMINAL_THEME, MONOKAI

from demo.unet import trained
from safe_arm.report.terminal import print_details, print_recommendation, print_side_by_side

THEMES = {"light": DEFAULT_TERMINAL_THEME, "dark": MONOKAI}

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def reports():
    """The records of the demo's U-Net under both policies."""
    inputs = (torch.randn(1, 3, 32, 32, generator=torch.Generator().manual_seed(0)),)
    spec, found = tosa("TOSA-1.0+INT+FP"), {}
    quantised = quantize(trained(), inputs, spec)
    for policy in ("reject", "propagate"):
        _, partitioner = lower_safely(quantised, inputs, spec, non_fuseable=policy)
        found[policy] = partitioner.report
    return found


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("width", [80, 120])
def test_a_terminal_shows_all_of_every_line(browser, reports, width, theme):
    console = Console(record=True, file=io.StringIO(), force_terminal=True, width=width, height=50, highlight=False)
    print_side_by_side(reports, console)
    print_details(reports["reject"], console)
    print_recommendation(reports, "reject", console)
    lines = console.export_text(clear=False).splitlines()
    assert max(map(len, lines)) <= width
    assert any(line.startswith("recommended     export with --non-fuseable best: verified") for line in lines)
    page = browser.new_page(viewport={"width": 9 * width, "height": 600})
    page.set_content(console.export_svg(title="safe-arm check unet.pt2", theme=THEMES[theme]))
    SHOTS.mkdir(parents=True, exist_ok=True)
    page.locator("svg").screenshot(path=SHOTS / f"terminal-{width}-{theme}.png")
