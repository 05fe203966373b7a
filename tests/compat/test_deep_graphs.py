"""Stock passes may recurse along a graph of any depth while our delegates are lowered, and nowhere else."""

import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from lowering import PROFILES, delegates, lower, quantize, tosa
from small import Residual, image

from safe_arm import SafeArmPartitioner
from safe_arm._compat.deep_graphs import deep
from safe_arm._compat.tested_releases import executorch_version, parse
from safe_arm._compat.upstream import TOSAPartitioner
from safe_arm.core.origins import chain

pytestmark = pytest.mark.skipif(sys.version_info < (3, 11), reason="calls take C stack before Python 3.11")


def depth(left):
    return depth(left - 1) if left else True


def test_recursion_is_as_deep_as_the_graph_and_ends_as_before():
    limit = sys.getrecursionlimit()
    with pytest.raises(RecursionError):
        depth(2 * limit)
    with deep(nodes=limit):
        assert depth(2 * limit)
        with deep(nodes=1):
            assert depth(2 * limit)
    assert sys.getrecursionlimit() == limit


def test_two_threads_share_the_deeper_limit():
    limit, together = sys.getrecursionlimit(), Barrier(2)

    def one(nodes):
        with deep(nodes):
            together.wait()
            return depth(2 * limit)

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(one, (limit, 1))) == [True, True]
    assert sys.getrecursionlimit() == limit


def test_the_limit_is_back_after_a_failure():
    limit = sys.getrecursionlimit()
    with pytest.raises(KeyError), deep(10):
        raise KeyError
    assert sys.getrecursionlimit() == limit


@pytest.mark.full
@pytest.mark.skipif(parse(executorch_version()) < (1, 5), reason="measured on 1.5.1")
def test_a_net_of_280_blocks_dies_in_stock_and_is_one_delegate_with_ours():
    graph_module = quantize(Residual(280).eval(), image(), tosa(PROFILES[0]))
    with pytest.raises(Exception, match="An error occurred") as raised:
        lower(graph_module, image(), TOSAPartitioner(tosa(PROFILES[0])))
    assert any(isinstance(link, RecursionError) for link in chain(raised.value))
    partitioner = SafeArmPartitioner(tosa(PROFILES[0]))
    assert len(delegates(lower(graph_module, image(), partitioner))) == 1
    assert partitioner.report.demoted == ()
