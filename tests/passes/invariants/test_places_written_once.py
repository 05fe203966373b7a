"""Constant indices that name one place twice are refused, cheaply, without a verification."""

import pytest
import torch
from breaking import broken_in, check_broken
from lowering import RELEASE, codes_apart, edge_program, lower, quantize, targets, tosa
from small import Lambda

from safe_arm import SafeArmPartitioner
from safe_arm.core.errors import DemotionWarning
from safe_arm.passes.invariants.places_written_once import REWRITE, PlacesWrittenOnce

pytestmark = pytest.mark.skipif(RELEASE < (1, 5), reason="index_put is delegated from 1.5 on")

REPEATED = {"rows": ([0, 0, 1],), "negative": ([0, -4, 1],), "points": ([0, 1, 0], [2, 2, 2])}
DISTINCT = {"rows": ([0, 2, 1],), "points": ([0, 0, 1], [2, 3, 2])}


def written(indices, profile):
    """A quantised write of a tensor into rows or single points of another, and its inputs."""
    given = tuple(torch.tensor(each) for each in indices)
    values = torch.randn(3, 8) if len(indices) == 1 else torch.randn(3)
    inputs = (torch.randn(4, 8), values)
    return quantize(Lambda(lambda m, x, y: torch.index_put(x, given, y)), inputs, tosa(profile)), inputs


@pytest.mark.parametrize("indices", REPEATED.values(), ids=REPEATED)
def test_red_for_a_place_named_twice(indices, profile):
    error = broken_in(*written(indices, profile), profile)
    check_broken(error, "places-written-once", REWRITE, "aten_index_put_default writes to one place twice")


@pytest.mark.parametrize("indices", DISTINCT.values(), ids=DISTINCT)
def test_quiet_where_each_place_is_named_once(indices, profile):
    assert broken_in(*written(indices, profile), profile) is None


def test_it_leaves_the_delegate_with_that_reason_and_is_right(profile):
    graph_module, inputs = written(REPEATED["rows"], profile)
    partitioner = SafeArmPartitioner(tosa(profile))
    with pytest.warns(DemotionWarning, match="writes to one place twice"):
        manager = lower(graph_module, inputs, partitioner)
    (demoted,) = partitioner.report.demoted
    assert demoted.op == "aten::index_put"
    assert "SCATTER does not define" in demoted.reason
    assert codes_apart(manager, graph_module, inputs) == 0


@pytest.mark.parametrize("index", [torch.tensor([True, True, False, False]), None], ids=["a mask", "an input"])
def test_quiet_where_the_index_is_no_constant_list_of_places(index):
    inputs = torch.randn(4, 8), torch.randn(2, 8), torch.tensor([0, 0])
    net = Lambda(lambda m, x, y, rows: torch.index_put(x, (rows if index is None else index,), y))
    program = edge_program(net, inputs)
    assert "index_put" in targets(program.graph_module)
    invariant = PlacesWrittenOnce()
    invariant.begin(program, program.graph_module)
    invariant.before(REWRITE, program.graph_module)
    invariant.after(REWRITE, program.graph_module, program)
