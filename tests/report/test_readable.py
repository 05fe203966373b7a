"""The report of a partitioner prints as its summary, and is a table with a link to the page in a notebook."""

import base64
import re
from dataclasses import replace

import pytest
import torch
from lowering import lower_safely, quantize, tosa
from small import Lambda, image
from two_methods import DECODE, ENCODE

from benchmarks.reports import large_report
from safe_arm.core.plain_reasons import plain
from safe_arm.core.record import joined
from safe_arm.report.html import html
from safe_arm.report.readable import HEIGHT, WIDTH, readable


def link(report):
    return re.search(r'<a href="data:text/html;charset=utf-8;base64,([^"]+)"', report._repr_html_())[1]


@pytest.fixture(scope="module")
def partitioner():
    spec, net = tosa("TOSA-1.0+INT"), Lambda(lambda m, x: torch.atan2(m.conv(x), x))
    _, partitioner = lower_safely(quantize(net, image(), spec), image(), spec)
    return partitioner


def test_a_partitioners_report_prints_what_it_came_to(partitioner):
    text = str(partitioner.report)
    assert "verified        1 of 1 delegate against the quantised graph: exact\n" in text
    assert "\ntried           6 sets of inputs in" in text
    assert "\ndelegates       1\noperators       1 of 2 delegated\n" in text
    assert "aten::atan2" in text
    assert "\x1b" not in text
    assert text == text.strip("\n")
    assert f"{partitioner.reports['forward']}" == text


def test_what_prints_is_the_same_record(partitioner):
    assert readable(partitioner.report) == partitioner.report
    assert str(replace(partitioner.report, trials=7)) == str(partitioner.report)
    both = joined({"enc": readable(ENCODE), "dec": readable(DECODE)})
    assert "method          enc: 1 of 3 operators delegated" in str(both)


def test_a_large_report_prints_no_more_than_a_page():
    lines = str(readable(large_report(3000, every=2))).splitlines()
    assert len(lines) <= HEIGHT
    assert max(map(len, lines)) <= WIDTH


def test_a_notebooks_table_names_what_is_not_delegated(partitioner):
    table = partitioner.report._repr_html_()
    assert plain(partitioner.report.fallbacks[0].reason) in table
    assert "tosa_support_check" not in table
    assert "TOSA-1.0+INT" in table
    assert "costs no MACs" in table
    assert "to do: write it with other operators" in table
    assert len(table) - len(link(partitioner.report)) < 2_500


def test_a_notebooks_text_is_the_summary(partitioner):
    formatters = pytest.importorskip("IPython.core.formatters", reason="the older lanes have no Jupyter")
    data, _ = formatters.DisplayFormatter().format(partitioner.report)
    assert data == {"text/plain": str(partitioner.report), "text/html": partitioner.report._repr_html_()}


def test_the_link_holds_the_page(partitioner):
    assert base64.b64decode(link(partitioner.report)).decode() == html(partitioner.report)


@pytest.mark.browser
def test_the_link_saves_the_page(partitioner, browser, tmp_path):
    (tmp_path / "output.html").write_text(partitioner.report._repr_html_())
    page = browser.new_page()
    page.goto((tmp_path / "output.html").as_uri())
    with page.expect_download() as saved:
        page.get_by_role("link", name="The full report").click()
    assert saved.value.suggested_filename == "safe_arm-report.html"
    assert saved.value.path().read_text() == html(partitioner.report)
