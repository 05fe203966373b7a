"""Of the multiply-accumulates that stock delegates rightly, ours delegates no fewer under ``propagate``, net by net.

Those of a layer that no input reaches, such as one that reads an initial state of zeros, do not count: ours folds it.
"""

import pytest
import torch
from corpus_modes import MODES, mode_of, quantised
from corpus_nets import CorpusNet, corpus_net
from executorch.backends.arm.quantizer import TOSAQuantizer
from executorch.backends.arm.tosa.partitioner import TOSAPartitioner
from lowering import lower, tosa

from benchmarks.delegated_macs import Shares, shares
from benchmarks.proof_nets import NETS
from safe_arm import SafeArmPartitioner, SafeTOSAQuantizer, verify

pytestmark = [pytest.mark.proof, pytest.mark.filterwarnings("ignore")]

BOTH = {
    "stock": (TOSAQuantizer, TOSAPartitioner),
    "ours": (SafeTOSAQuantizer, lambda spec: SafeArmPartitioner(spec, non_fuseable="propagate", verify=True)),
}


def rightly_delegated(corpus, mode, by):
    """The shares of a net, right on inputs nobody has seen; nothing when an export dies."""
    quantizer_class, partitioner = BOTH[by]
    try:
        graph_module = quantised(corpus, mode, quantizer_class)
        manager = lower(graph_module, corpus.samples[0], partitioner(tosa(MODES[mode][0])))
    except Exception:
        if by == "stock":
            return Shares(0, 0, 0, 0)
        raise
    reference = torch.export.export(graph_module, corpus.samples[0])
    return shares(manager.exported_program(), verify(manager, corpus.fresh, reference=reference))


def cases():
    for number in range(200):
        yield pytest.param(
            lambda number=number: corpus_net(number), mode_of(number), id=f"{number:03}-{mode_of(number)}"
        )
    for name, net in NETS.items():
        for mode in ("INT", "INT+FP", "INT-a16w8"):
            yield pytest.param(lambda net=net: pretrained(*net()), mode, id=f"{name}-{mode}")


def pretrained(net, inputs):
    return CorpusNet("", net, [inputs], [inputs])


@pytest.mark.parametrize(("build", "mode"), cases())
def test_no_fewer_than_stock(build, mode):
    ours, stock = (rightly_delegated(build(), mode, by) for by in ("ours", "stock"))
    assert ours.needed >= stock.needed
