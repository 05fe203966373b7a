"""A setting for a name that the net does not have is warned of once; one that has it is not."""

import pytest
import torch
from lowering import min_max
from small import Built, image
from spying import doubts
from stubborn import exported, quantizer_of
from torch import nn
from torchao.quantization.pt2e.quantize_pt2e import prepare_pt2e

BRANCHES = torch.randn(1, 4, 8, 8), torch.tensor(True)


def net():
    return Built(lambda m, x: torch.softmax(m.head(m.body(x)), -1), body=nn.Conv2d(4, 4, 1), head=nn.Conv2d(4, 2, 1))


def conditional():
    """A net of which one branch alone has a module."""
    return Built(
        lambda m, x, choice: torch.cond(choice, lambda y: m.head(y), lambda y: y + 1.0, (x,)), head=nn.Conv2d(4, 4, 1)
    )


def told(setter, name, quantizer=None):
    """What is warned of while a net is prepared by a quantiser that has a config for a name."""
    quantizer = quantizer or quantizer_of()
    getattr(quantizer, setter)(name, min_max())
    return doubts(lambda: prepare_pt2e(exported(net(), image()), quantizer))[1]


MISSED = {
    "a typing error": (
        "set_module_name",
        "haed",
        "no operator of the net is in a module of that name; near it are 'head'",
    ),
    "no such module": ("set_module_name", "xyz", "of that name; there are 'body', 'head'"),
    "no such operator": ("set_node_name", "conv2d_7", "has that name; near it are 'conv2d_1', 'conv2d'"),
    "one of several": ("set_node_name", ["conv2d", "nothing"], "set_node_name('nothing', ...) changes nothing"),
}


@pytest.mark.parametrize(("setter", "name", "says"), MISSED.values(), ids=MISSED)
def test_a_name_that_the_net_does_not_have_is_warned_of(setter, name, says):
    (message,) = told(setter, name)
    assert says in message


FOUND = {
    "a module": ("set_module_name", "head"),
    "the whole net": ("set_module_name", ""),
    "an operator": ("set_node_name", "conv2d_1"),
    "one that is taken apart": ("set_node_name", "softmax"),
}


@pytest.mark.parametrize(("setter", "name"), FOUND.values(), ids=FOUND)
def test_a_name_that_the_net_has_is_not(setter, name):
    assert told(setter, name) == []


def test_it_is_said_once():
    quantizer = quantizer_of()
    assert len(told("set_module_name", "haed", quantizer)) == 1
    assert told("set_module_name", "body", quantizer) == []


BOTH = [BRANCHES, (BRANCHES[0], ~BRANCHES[1])]


def told_of_branches(setter, name):
    """What is warned of names while a net is quantised with its branches, which are graphs of their own."""
    quantizer = quantizer_of()
    getattr(quantizer, setter)(name, None)
    _, said = doubts(quantizer.quantize_with_submodules, exported(conditional(), BRANCHES), BOTH)
    return [each for each in said if "changes nothing" in each]


def test_an_operator_of_a_branch_is_found():
    assert told_of_branches("set_node_name", "conv2d") == []


def test_export_keeps_no_names_of_modules_in_a_branch():
    (message,) = told_of_branches("set_module_name", "head")
    assert message.endswith("; its operators have none")
