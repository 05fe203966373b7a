"""Refuse to quantise what is prepared already or has lost values, and warn of what is quantised already."""

from __future__ import annotations

from torch._subclasses.fake_tensor import FakeTensor
from torch.fx import GraphModule
from torch.nn import Module

from safe_arm.core.attributes import stored_value
from safe_arm.core.errors import UsageError, warn_of_doubt
from safe_arm.core.island import is_dequantize

_PREPARED = "the graph module is prepared already: it has observers; prepare the exported float graph module"
_QUANTISED = (
    "the graph module is quantised already: its values are rounded twice, and it is what is compared as the float net; "
    "quantise the exported float graph module"
)
_WITHOUT_VALUES = (
    "the constant {!r} of the graph module has no values, for torch.export has traced something that it cannot, such "
    "as torch.func.grad: the module cannot be run either; write the gradient as a formula"
)


def check_has_values(model: GraphModule) -> None:
    """Check that each constant of a graph has values.

    Args:
        model: a graph; branches of its control flow are not looked at.

    Raises:
        UsageError: a constant is a fake tensor. What depends on an input is a constant then, and the input is lost.
    """
    for node in model.graph.find_nodes(op="get_attr"):
        if isinstance(stored_value(node), FakeTensor):
            raise UsageError(_WITHOUT_VALUES.format(str(node.target)))


def check_is_float(model: GraphModule) -> None:
    """Check that a graph is neither prepared nor quantised.

    Args:
        model: the graph that a quantiser is about to prepare; branches of its control flow are not looked at.

    Raises:
        UsageError: it has observers. It was prepared before, as by a notebook's cell that is run twice.
    """
    for node in model.graph.find_nodes(op="call_module"):
        called = model.get_submodule(str(node.target))
        if _is_observer(called):
            raise UsageError(_PREPARED)
    if any(map(is_dequantize, model.graph.nodes)):
        warn_of_doubt(_QUANTISED)


def _is_observer(module: Module) -> bool:
    """Tell whether a module watches values for quantising, as torchao's observers and their stand-ins do."""
    return hasattr(module, "calculate_qparams")
