"""Accuracy on the page: not there unless asked, every unit in the plot, and the shades in a browser."""

from dataclasses import replace
from xml.etree import ElementTree

import pytest
from invented_accuracy import measured

from benchmarks.reports import large_report
from safe_arm.core.unit_accuracy import EXACT_DB
from safe_arm.report.accuracy_plot import accuracy_data, accuracy_section, shaded_units
from safe_arm.report.html import html


@pytest.fixture(scope="module")
def report():
    plain = large_report(60)
    accuracy, verdicts = measured(plain.verdicts)
    return replace(plain, accuracy=accuracy, verdicts=verdicts)


def test_a_page_without_it_has_nothing_of_it():
    plain = large_report(60)
    assert (accuracy_section(plain), accuracy_data(plain)) == (None, {})
    page = html(plain)
    assert 'id="accuracy"' not in page
    assert 'id="colour"' not in page


def test_every_unit_is_in_the_plot_and_in_it(report):
    page = html(report)
    plot = ElementTree.fromstring(page[page.index('<svg class="plot"') :].partition("</svg>")[0] + "</svg>")
    circles, bars = plot.findall("circle"), plot.findall("rect")
    assert len(circles) == len(report.accuracy.units)
    assert all(28 < float(mark.get("cx")) < 360 and 0 <= float(mark.get("cy")) <= 142 for mark in circles)
    assert bars
    assert all(float(bar.get("y")) + float(bar.get("height")) == pytest.approx(142, abs=0.1) for bar in bars)
    finite = [unit for unit in report.accuracy.units if unit.isolated_db < EXACT_DB]
    points = {line.get("class"): len(line.get("points").split()) for line in plot.findall("polyline")}
    assert points == {"isolated": len(finite), "cumulative": len(circles)}
    assert len(finite) < len(circles)
    assert ["data-node" not in mark.attrib for mark in circles] == [not unit.op for unit in report.accuracy.units]


@pytest.mark.parametrize(
    ("share", "ratio", "by_noise", "by_ratio"),
    [(0.0, 40.0, 0, 0), (0.01, 39.9, 1, 1), (0.06, 25.0, 2, 2), (0.2, 15.0, 3, 3), (0.31, 9.0, 4, 4)],
)
def test_the_shades(report, share, ratio, by_noise, by_ratio):
    unit = replace(report.accuracy.units[1], cumulative_db=ratio, output_noise=share)
    rest = replace(report.accuracy.units[2], output_noise=1 - share)
    found = shaded_units(replace(report, accuracy=replace(report.accuracy, units=(unit, rest))))[unit.name]
    assert (found.by_noise, found.by_ratio) == (by_noise, by_ratio)


def test_without_gradients_the_shade_is_that_of_the_ratio_alone(report):
    unit = replace(report.accuracy.units[1], isolated_db=15.0, output_noise=None)
    assert shaded_units(replace(report, accuracy=replace(report.accuracy, units=(unit,))))[unit.name].by_noise == 3


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nodes_are_coloured_by_what_is_chosen(report, opened, scheme):
    page = opened(report, "net", scheme)
    for drawn, colour in enumerate("01", 2):
        page.page.get_by_label("colour").select_option(colour)
        page.drawn(drawn)
        assert all(page.boxes(f".shade-{shade}") for shade in range(5))
    page.shoot(f"accuracy-{scheme}")
    page.page.locator("#accuracy .node").first.click()
    assert "as a quantised unit" in page.details()
    page.page.get_by_label("colour").select_option("")
    page.drawn(4)
    assert page.boxes(".shade-4") == []
