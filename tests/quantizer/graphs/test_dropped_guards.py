"""The guards of an export are no part of what is quantised."""

import pytest
import torch
from executorch.backends.arm.quantizer import TOSAQuantizer
from graph_changes import changes
from lowering import RELEASE
from small import Lambda, image
from stubborn import exported, quantizer_of
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

from safe_arm import SafeTOSAQuantizer
from safe_arm.quantizer.graphs.dropped_guards import drop_guards

#: With 1.4, an export has none.
guarded = pytest.mark.skipif(RELEASE < (1, 5), reason="torch's export adds no guards in a process with 1.4")
UNIT = (torch.linspace(-1, 1, 64).reshape(1, 4, 4, 4),)
#: By name: a net and its inputs. A pass traces the first again; of the second nobody else reads the input.
NETS = {
    "a global pool": (Lambda(lambda m, x: torch.nn.functional.adaptive_avg_pool2d(m.conv(x), 1)), image()),
    "an arcsine": (Lambda(lambda m, x: torch.asin(x)), UNIT),
}


def steps(name, check_guards, quantizer_class=SafeTOSAQuantizer):
    """The operators and numbers of a converted net's export."""
    net, inputs = NETS[name]
    quantizer = quantizer_of(quantizer_class)
    prepared = prepare_pt2e(exported(net, inputs, check_guards=check_guards), quantizer)
    prepared(*inputs)
    assert not getattr(quantizer, "left_float", ())
    graph = torch.export.export(convert_pt2e(prepared), inputs).graph
    calls = [node for node in graph.nodes if node.op == "call_function"]
    return [(str(node.target), [each for each in node.args if isinstance(each, float | int)]) for node in calls]


@guarded
def test_stock_dies_of_them():
    with pytest.raises(Exception, match="DecomposeAdaptiveAvgPool2dPass"):
        steps("a global pool", True, TOSAQuantizer)


@pytest.mark.parametrize("name", NETS)
def test_ours_quantises_as_without_them(name):
    assert steps(name, True) == steps(name, False)


@guarded
def test_a_graph_without_them_is_left_alone_and_twice_equals_once():
    model = exported(*NETS["an arcsine"], check_guards=True)
    assert changes(drop_guards, model)
    assert not changes(drop_guards, model)
    assert not changes(drop_guards, exported(*NETS["an arcsine"]))
