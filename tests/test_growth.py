"""The work of a lowering grows with the net, not faster: counted, not timed."""

import copy
from collections import Counter

import pytest
import torch
import torch.fx.traceback as fx_traceback
from lowering import PROFILES, RELEASE, lower_program, quantize, tosa
from small import Built, Residual, image
from torch.fx import Graph, Interpreter

from safe_arm import SafeArmPartitioner
from safe_arm._compat.upstream import ExportPass, TOSAPartitioner

BLOCKS = (2, 4, 8)


def parts(count):
    """So many delegates: convolutions with Bessel functions between them, which no backend of Arm's takes."""
    layers = []
    for _ in range(count):
        layers += [torch.nn.Conv2d(4, 4, 1), Built(lambda m, x: x.i0())]
    return torch.nn.Sequential(*layers)


def counts_of(net, profile, partitioner):
    """What one lowering does: re-traces, nodes traced or copied, operators evaluated, histories copied, code."""
    net = net.eval()
    program = torch.export.export(quantize(net, image(), tosa(profile)), image())
    done = Counter()
    with pytest.MonkeyPatch.context() as patch:

        def count(owner, name, what, amount=lambda *_: 1):
            stock = getattr(owner, name)

            def counting(*args, **kwargs):
                done[what] += amount(*args)
                return stock(*args, **kwargs)

            patch.setattr(owner, name, counting)

        count(ExportPass, "call", "re-traces")
        count(ExportPass, "call", "nodes re-traced", lambda self, module: len(module.graph.nodes))
        # ExecuTorch's passes evaluate in a plain interpreter.
        count(Interpreter, "call_function", "operators evaluated", lambda self, *_: type(self) is Interpreter)
        count(Graph, "python_code", "code written")
        count(Graph, "node_copy", "nodes copied")
        copied = copy.deepcopy

        def deepcopy(value, memo=None):
            histories = isinstance(value, list) and value and isinstance(value[0], fx_traceback.NodeSource)
            done["histories copied"] += bool(histories)
            return copied(value, memo)

        patch.setattr(fx_traceback.copy, "deepcopy", deepcopy)
        lower_program(program, partitioner)
    return done


def faster_than_linear(counts):
    """The kinds of work that grew more from 4 to 8 blocks than twice what they grew from 2 to 4."""
    two, four, eight = counts
    return {
        what: (two[what], four[what], eight[what])
        for what in eight
        if eight[what] - four[what] > 2 * (four[what] - two[what])
    }


def test_nothing_grows_faster_than_the_net(profile):
    counts = [counts_of(Residual(n), profile, SafeArmPartitioner(tosa(profile))) for n in BLOCKS]
    assert faster_than_linear(counts) == {}
    assert len({count["re-traces"] for count in counts}) == 1
    assert len({count["code written"] for count in counts}) == 1
    # torch copies one when it unlifts a program; not one a re-trace.
    assert 10 * counts[-1]["histories copied"] < counts[-1]["nodes re-traced"]


def test_nothing_grows_faster_than_the_number_of_delegates_and_the_guard_sees_stock_do_so():
    counts = [counts_of(parts(n), PROFILES[0], SafeArmPartitioner(tosa(PROFILES[0]))) for n in BLOCKS]
    assert faster_than_linear(counts) == {}
    counts = [counts_of(parts(n), PROFILES[0], TOSAPartitioner(tosa(PROFILES[0]))) for n in BLOCKS]
    assert "nodes copied" in faster_than_linear(counts)


@pytest.mark.skipif(RELEASE < (1, 5), reason="stock re-traces once a block from 1.5 on")
def test_the_guard_sees_stock_grow():
    counts = [counts_of(Residual(n), PROFILES[0], TOSAPartitioner(tosa(PROFILES[0]))) for n in BLOCKS]
    assert "nodes re-traced" in faster_than_linear(counts)
    assert counts[-1]["histories copied"] > 0
    assert counts[-1]["re-traces"] > counts[0]["re-traces"]
