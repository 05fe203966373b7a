"""The map of what is delegated of public libraries' nets: its page follows from its data (`make coverage-map`)."""

import torch
import torch.nn as nn
from interpreter import ROOT
from small import Built
from spying import raising

from benchmarks.architectures.measure import rows_of
from benchmarks.coverage_map.__main__ import NETS
from benchmarks.coverage_map.cuts import OURS, STOCK, cut
from benchmarks.coverage_map.page import fewer_than_stock, is_whole, page, ranking

RECORD = rows_of(ROOT / "tests" / "data" / "coverage-1.5.jsonl")


def test_the_page_is_the_record_in_which_ours_delegates_no_fewer_macs_than_stock():
    assert (ROOT / "docs" / "coverage.md").read_text() == page(RECORD, list(NETS))
    keys = [(row["net"], row["target"], row["by"]) for row in RECORD]
    assert len(keys) == len(set(keys))
    assert fewer_than_stock(RECORD) == []


def test_operators_are_ranked_by_the_nets_they_are_outside_in():
    rows = [{"net": "a", "outside": {"sort": {"no": 1}, "topk": {"no": 1}}}, {"net": "b", "outside": {"topk": {"": 2}}}]
    assert ranking(rows) == [("topk", ["a", "b"], 3), ("sort", ["a"], 1)]


def test_what_is_cut_is_counted():
    """Of a convolution, an operator that TOSA lacks, and a convolution."""
    layers = {"before": nn.Conv2d(2, 2, 1), "behind": nn.Conv2d(2, 2, 1)}
    net = Built(lambda m, x: m.behind(torch.i0(m.before(x))), **layers)
    ours = cut("bessel", lambda: (net.eval(), (torch.randn(1, 2, 4, 4),)), "TOSA INT", OURS, 60)
    assert (ours.failed, ours.delegates, list(ours.outside)) == ("", 2, ["aten.i0.default"])
    assert ours.macs == ours.macs_inside == 2 * 2 * 2 * 16
    assert not is_whole(vars(ours))


def test_a_net_that_fails_is_on_record_with_the_reason():
    gone = cut("gone", raising(ValueError("no such net\nat all")), "TOSA INT", STOCK, 60)
    assert gone.failed == "ValueError: no such net"
