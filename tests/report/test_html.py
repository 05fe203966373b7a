"""The report as a page: one file that loads nothing, read in a real browser with the network off."""

import json
import re
from dataclasses import replace

import pytest
import torch
from lowering import lower_safely, quantize, tosa
from two_methods import BOTH, ENCODE

from benchmarks.reports import large_report
from demo.unet import trained
from safe_arm.core.device_cost import VelaSummary
from safe_arm.core.float_comparison import FloatComparison, OutputFidelity
from safe_arm.core.record import Applied, NodeVerdict, Reason, Report, Subject, Verification
from safe_arm.core.unit_accuracy import Accuracy, UnitAccuracy
from safe_arm.known_issues import known_issues
from safe_arm.report.html import html

NASTY = "</script><script>window.owned=1</script><img src=x onerror=window.owned=1><!--{{7*7}}"
MIB = 1 << 20


def nasty_report():
    """Every string in the record wants to be HTML."""
    reason = Reason("because " + NASTY, "check", "S1" + NASTY)
    texts = {"source": "file.py:1  " + NASTY, "value": NASTY, "left_float": NASTY, "graph": NASTY}
    fallback = NodeVerdict("fallback" + NASTY, "aten::" + NASTY, None, (reason,), inputs=("x" + NASTY,), **texts)
    inside = NodeVerdict("inside" + NASTY, "aten::relu", "tag" + NASTY, inputs=("fallback" + NASTY,))
    return Report(
        (fallback, inside),
        1,
        1,
        verifications=(Verification("tag" + NASTY, False, NASTY, 0, 0.0, 0, 0.0),),
        applied=(Applied("correction" + NASTY, NASTY, "tag" + NASTY, ("inside" + NASTY,)),),
        subject=Subject(NASTY, NASTY, NASTY, (), {NASTY: NASTY}, ("x" + NASTY,), ("inside" + NASTY,)),
        accuracy=Accuracy((UnitAccuracy("unit" + NASTY, NASTY, "", 41.0, 41.0, 0.0, 1.0),), (33.0,), 8, 1.0),
    )


def embedded(page):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)[1])


@pytest.fixture(scope="module")
def unet():
    """The record of the demo's U-Net, verified: its two skip connections are non-fuseable islands."""
    inputs = (torch.randn(1, 3, 32, 32, generator=torch.Generator().manual_seed(0)),)
    spec = tosa("TOSA-1.0+INT+FP")
    _, partitioner = lower_safely(quantize(trained(), inputs, spec), inputs, spec, verify=True)
    return partitioner.report


def test_twice_is_the_same():
    assert html(large_report(300), "net") == html(large_report(300), "net")
    assert html(nasty_report(), "net") == html(nasty_report(), "net")


def test_a_page_refers_to_no_address():
    page = html(large_report(300))
    without_scripts = re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    assert re.findall(r'(?:src|href)\s*=\s*["\'][^"\']', without_scripts) == []
    assert "default-src 'none'" in page


def test_a_page_of_5000_nodes_is_under_5_mb_and_holds_all_of_them():
    report = large_report(5000)
    page = html(report)
    assert len(page.encode()) < 5 * MIB
    nodes = embedded(page)["nodes"]
    assert [node["name"] for node in nodes] == [verdict.name for verdict in report.verdicts]
    assert [node["verdict"] for node in nodes] == [verdict.verdict for verdict in report.verdicts]


def test_all_reasons_of_a_node_reach_the_page():
    reasons = (Reason("first", "check", "S1"), Reason("second", "stock"), Reason("third", "boundary"))
    report = Report((NodeVerdict("a", "aten::relu", None, reasons),), 0, 0)
    data = embedded(html(report))
    shown = [data["reasons"][number] for number in data["nodes"][0]["reasons"]]
    assert [Reason(each["text"], each["stage"], each["issue"]) for each in shown] == list(reasons)


def test_names_that_want_to_be_html_stay_text():
    page = html(nasty_report(), NASTY)
    assert "<img src=x" not in page
    assert "<script>window.owned" not in page
    assert "<!--{{7" not in page
    assert embedded(page)["nodes"][0]["name"] == "fallback" + NASTY
    assert list(embedded(page)["accuracy"]["units"]) == ["unit" + NASTY]


@pytest.mark.parametrize("report", [Report((), 0, 0), large_report(9)], ids=["empty", "all delegated"])
def test_reports_without_fallbacks_say_so(report):
    assert "Every operator is delegated." in html(report)


def test_velas_cycles_are_shown_where_there_are_any():
    report = large_report(300)
    assert "as Vela estimates them" not in html(report)
    assert "1.23 M</td>" in html(replace(report, cycles={report.delegates[0]: 1_234_567}))


def test_the_board_that_the_cycles_are_for_is_named_once_where_there_is_one():
    report = large_report(300)
    figures = {"system_config": "Ethos_U85_SYS_DRAM_Mid", "memory_mode": "Sram_Only"}
    vela = (VelaSummary("tag0", figures), VelaSummary("tag1", figures))
    assert html(replace(report, vela=vela)).count(">Ethos_U85_SYS_DRAM_Mid, Sram_Only</span>") == 1
    assert "what Vela's cycles" not in html(replace(report, vela=(VelaSummary("tag0", {}),)))


def test_a_policy_is_advised_that_keeps_what_is_verified_alone():
    island = NodeVerdict("a", "aten::relu", None, (Reason("not implied", "check", "S1"),))
    page = html(Report((island,), 1, 1))
    assert '<code>non_fuseable="best"</code> would delegate the refused island.' in page


def test_a_page_is_headed_by_model_target_date_and_versions(unet):
    page = html(unet)
    header = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page[page.index("<header>") : page.index("</header>")]))
    assert "<title>UNet</title>" in page
    assert header.startswith(f" UNet tosa {unet.subject.profile} ")
    assert re.search(r" \d{4}-\d\d-\d\d safe_arm \S+ executorch \S+ torch \S+ $", header)
    assert "<h1>denoiser</h1>" in html(unet, "denoiser")


def test_two_methods_are_two_graphs_and_said():
    page = html(BOTH)
    data = embedded(page)
    nodes = data["nodes"]
    assert [node["method"] for node in nodes] == ["enc"] * 4 + ["dec"] * 4
    enc, dec = [["enc:x"], [0], [1, "enc:x"], None], [["dec:x"], [4], [5, "dec:x"], None]
    assert [node.get("inputs") for node in nodes] == [*enc, *dec]
    assert data["inputs"] == ["enc:x", "dec:x"]
    assert data["outputs"] == [2, "enc:x", 6, "dec:x"]
    assert data["output_labels"] == ["enc: output 0", "enc: output 1", "dec: output 0", "dec: output 1"]
    assert set(data["verifications"]) == {"enc:tag0", "dec:tag0"}
    regions = [node.get("region") for node in nodes]
    assert len({region for region in regions if region}) == 6
    assert "<span>methods: enc, dec</span>" in page
    assert "<summary>By method</summary>" in page
    assert ">dec: aten::relu</button>" in page


def test_of_a_method_without_macs_no_share_is_given():
    without = [replace(verdict, macs=0) if verdict.method == "dec" else verdict for verdict in BOTH.verdicts]
    page = html(replace(BOTH, verdicts=tuple(without)))
    assert re.findall(r'<td>(enc|dec)</td>.*<td class="number">([^<]*)</td></tr>', page) == [
        ("enc", "100.0 %"),
        ("dec", "none"),
    ]


def named(report, *names, method="forward"):
    """A report whose float comparison names the outputs."""
    outputs = tuple(OutputFidelity(name, 40.0, 40.0) for name in names)
    return replace(report, float_comparisons=(*report.float_comparisons, FloatComparison(outputs, 1, method=method)))


def test_outputs_have_the_names_of_a_dictionary():
    assert embedded(html(named(ENCODE, "logits", "aux[1]")))["output_labels"] == ["logits", "aux[1]"]
    both = embedded(html(named(BOTH, "logits", "aux", method="dec")))["output_labels"]
    assert both == ["enc: output 0", "enc: output 1", "dec: logits", "dec: aux"]


@pytest.mark.parametrize("names", [("output 0", "output 1"), ("logits",)], ids=["a tuple", "a buffer is returned too"])
def test_outputs_without_names_of_their_own_are_numbered(names):
    assert "output_labels" not in embedded(html(named(ENCODE, *names)))


def test_one_method_is_not_mentioned():
    page = html(ENCODE)
    body = page[page.index("<body>") : page.index('<script type="text/plain"')]
    assert "ethod" not in body
    assert embedded(page)["nodes"][1]["value"] == "int8[s77, 4, 16, 16]"


@pytest.mark.browser
def test_a_click_on_a_rejected_node_tells_why(unet, opened):
    page = opened(unet, "U-Net denoiser")
    page.shoot("unet")
    number, verdict = next((n, v) for n, v in enumerate(unet.verdicts) if v in unet.fallbacks and "convolution" in v.op)
    page.click_box(f"n:{number}")
    details = page.details()
    issue = next(issue for issue in known_issues() if issue.id == verdict.issue)
    around = next(v for v in unet.verdicts if v.name == verdict.inputs[0]).qparams
    for text in (verdict.name, "refused", verdict.source, verdict.value, f"{verdict.macs:,}", issue.title, issue.id):
        assert text in details
    assert f"{around.dtype} {around.quant_min}..{around.quant_max}, scale {around.scale:.6g}" in details
    assert verdict.inputs[0] in details
    page.shoot("unet-node")


@pytest.mark.browser
def test_every_fallback_of_a_unet_shows_all_its_reasons(unet, opened):
    page = opened(unet)
    assert unet.fallbacks
    for number, verdict in enumerate(unet.verdicts):
        if verdict.delegate is None:
            page.page.evaluate("number => select(number)", number)
            details = page.details()
            assert verdict.reasons
            assert [reason.text for reason in verdict.reasons if reason.text not in details] == []


@pytest.mark.browser
@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("int8[1, 4, 8, 8]", "1*4*8*8"),
        ("float32[1, 2], int64[1, 3]", "1*2, 1*3"),
        ("float32[s77, 2], int64[]", "s77*2"),
        ("int64[]", None),
    ],
    ids=["one", "two", "a number too", "a number"],
)
def test_the_label_of_a_node_has_the_sizes_of_each_result(opened, value, shown):
    page = opened(Report((NodeVerdict("topk", "aten::topk", None, (Reason("no", "stock"),), value=value),), 0, 0))
    lines = page.page.evaluate("cy.getElementById('n:0').data('text')").split("\n")
    assert lines == ["topk", *([shown.replace("*", "\N{MULTIPLICATION SIGN}")] if shown else [])]


@pytest.mark.browser
def test_what_is_drawn_are_all_operators_and_ends_of_the_model(unet, opened):
    page = opened(unet)
    alone = "cy.nodes().filter(node => !node.isParent() && !node.degree(true)).map(node => node.id())"
    assert page.page.evaluate(alone) == [], "every operator hangs in the graph"
    ends = len(unet.subject.inputs) + len(unet.subject.outputs)
    assert len(page.boxes()) == len(unet.compute) + ends
    assert len(page.boxes(".box")) == len(unet.delegates)
    page.page.get_by_text("Collapse delegates").click()
    page.drawn(2)
    assert len(page.boxes()) == len(unet.delegates) + len(unet.fallbacks) + ends
    page.page.get_by_text("Expand all").click()
    page.drawn(3)
    page.page.get_by_label("quantise, dequantise").check()
    page.drawn(4)
    assert len(page.boxes()) == len(unet.verdicts) + ends


@pytest.mark.browser
def test_search_marks_and_lists_what_it_finds(unet, opened):
    page = opened(unet)
    page.page.get_by_label("Search").fill("RELU")
    searched = {n: (v.name, v.source, v.reason, v.as_written) for n, v in enumerate(unet.verdicts) if v.computes}
    expected = [f"n:{number}" for number, texts in searched.items() if "relu" in " ".join(texts).lower()]
    assert page.page.locator("#found").inner_text() == f"{len(expected)} found"
    assert page.boxes(".hit") == expected
    page.page.get_by_label("Search").fill("no such operator")
    assert page.page.locator("#found").inner_text() == "none"


@pytest.mark.browser
def test_search_finds_the_names_of_the_quantised_graph(opened):
    named = NodeVerdict("aten_sum_dim_int_list", "aten::sum", "tag0", earlier_names=("sum_7", "softmax"))
    page = opened(Report((named, replace(named, name="other", earlier_names=())), 0, 0))
    for name, found in (("sum_7", "1 found"), ("softmax", "1 found"), ("sum_8", "none")):
        page.page.get_by_label("Search").fill(name)
        assert page.page.locator("#found").inner_text() == found


@pytest.mark.browser
def test_a_reason_in_the_list_leads_to_its_operators(unet, opened):
    page = opened(unet)
    page.page.locator(".why").first.click()
    group = max(unet.by_reason().values(), key=lambda verdicts: sum(v.macs for v in verdicts))
    assert len(page.boxes(".hit")) == len(group)
    page.page.get_by_role("button", name=group[0].as_written, exact=True).first.click()
    assert group[0].reason in page.details()


@pytest.mark.browser
def test_dark_where_the_system_is(unet, opened):
    page = opened(unet, "U-Net denoiser", "dark")
    assert page.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 24, 30)"
    page.shoot("unet-dark")


@pytest.mark.browser
def test_5000_nodes_are_folded_so_that_the_fallbacks_are_seen(opened):
    report = large_report(5000)
    page = opened(report, "A net of 5,000 nodes")
    number = report.verdicts.index(report.fallbacks[0])
    assert len(page.boxes()) == len(report.delegates) + len(report.fallbacks) + 2
    page.click_box(f"n:{number}")
    assert report.fallbacks[0].reason in page.details()
    page.shoot("large")


@pytest.mark.browser
def test_a_net_with_hardly_a_delegate_is_folded_too(opened):
    report = large_report(5000, every=2)
    refused = (Reason("no reason to speak of", "stock"),)
    verdicts = tuple(replace(v, delegate=None, reasons=v.reasons or refused) for v in report.verdicts)
    page = opened(replace(report, verdicts=verdicts))
    assert page.boxes() == ["i:x", "r:1", "o:0"]
    page.click_box("r:1")
    assert f"{len(report.compute):,}" in page.details()


@pytest.mark.browser
def test_no_name_runs(opened):
    page = opened(nasty_report(), NASTY)
    for box in page.boxes():
        page.click_box(box)
    page.page.get_by_label("Search").fill(NASTY[:9])
    page.page.evaluate("select(0)")
    assert "because " + NASTY in page.details()
    assert "known issue S1" + NASTY in page.details()
    assert page.page.evaluate("window.owned") is None
    assert page.page.title() == NASTY
