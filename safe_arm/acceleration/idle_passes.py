"""Skip the re-trace of a pass that would change nothing.

On the way to the edge program some seven of ExecuTorch's passes re-trace the whole graph and leave it as it was. Each
rewrites single operators in its ``call_operator``. Here that method is called on every operator with the values at
hand. If it hands all of them on unchanged, and the graph has not changed since its last trace, a re-trace would return
the same graph.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from torch._ops import OpOverload
from torch.fx import GraphModule
from torch.fx.node import map_arg

from safe_arm._compat.upstream import (
    EdgeOpOverload,
    ExportPass,
    NodeMetadata,
    PassResult,
    ProxyValue,
)
from safe_arm.acceleration.shortcuts import shortcuts, taking
from safe_arm.core.context import attributes_set
from safe_arm.core.exceptions import Caught, attempted


@dataclass
class OperatorQuestion:
    """An operator that a pass is called on: its arguments, its value, and how often the pass handed it on."""

    target: object
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    value: ProxyValue
    times: int = 0

    def answer(
        self,
        kind: str,
        op: object,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        meta: NodeMetadata,
    ) -> ProxyValue:
        """Stand for a pass's trace of an operator: count those that are handed on unchanged."""
        if op is not self.target or not _same(args, self.args):
            raise _ChangesError(op)
        if not _same(dict(kwargs), dict(self.kwargs)):
            raise _ChangesError(op)
        self.times += 1
        return self.value


#: Attributes of ``ExportPass`` that a pass may have and still only rewrite single operators.
_OVERRIDABLE = frozenset(("call", "call_operator", "_abc_impl"))


class _ChangesError(Exception):
    """The pass does something other than handing the operator on."""


def skipped() -> AbstractContextManager[None]:
    """Skip passes that would re-trace without change, in this thread, while the block runs."""
    return taking(last_traced=[])


def run(
    call: Callable[[ExportPass, GraphModule], PassResult],
    a_pass: ExportPass,
    graph_module: GraphModule,
) -> PassResult:
    """Run a pass; in the block of ``skipped``, one that would change nothing does not re-trace.

    Args:
        call: re-traces.
        a_pass: the pass.
        graph_module: the graph.
    """
    last = shortcuts().last_traced
    if last is None:
        return call(a_pass, graph_module)
    parts = _parts(graph_module)
    is_still = len(parts) == len(last) and all(map(operator.is_, parts, last))
    if is_still and _rewrites_operators_only(type(a_pass)):
        change = attempted(_hand_on_all, a_pass, graph_module)
        if not isinstance(change, Caught):
            return PassResult(graph_module, True)
    result = call(a_pass, graph_module)
    last[:] = _parts(result.graph_module)
    return result


def _parts(graph_module: GraphModule) -> list[Any]:
    """Return a graph module and all that a re-trace reads of it.

    Arguments are immutable, so a replaced one is another object.
    """
    parts: list[Any] = [graph_module]
    for n in graph_module.graph.nodes:
        parts += n, n.name, n.target, n.args, n.kwargs, n.meta.get("val")
    return parts


def _rewrites_operators_only(pass_class: type) -> bool:
    """Tell whether a pass changes a graph in ``call_operator`` only."""
    for cls in pass_class.__mro__:
        if cls is ExportPass or not issubclass(cls, ExportPass):
            continue
        for name in vars(cls):
            if name.startswith("__") or name in _OVERRIDABLE:
                continue
            if hasattr(ExportPass, name):
                return False
    return True


def _hand_on_all(a_pass: ExportPass, graph_module: GraphModule) -> None:
    """Call a pass on every operator of a graph and return if it hands all of them on unchanged."""
    values = {}
    for node in graph_module.graph.nodes:
        values[node] = ProxyValue(node.meta.get("val"), node)
    for node, value in values.items():
        target = node.target
        if node.op in ("placeholder", "output") or target is operator.getitem:
            continue
        is_operator = isinstance(target, (OpOverload, EdgeOpOverload))
        if node.op != "call_function" or not is_operator:
            raise _ChangesError(node)
        args, kwargs = map_arg((node.args, node.kwargs), values.__getitem__)
        question = OperatorQuestion(target, args, kwargs, value)
        with attributes_set(a_pass, _fx=question.answer):
            result = a_pass.call_operator(target, args, kwargs, NodeMetadata(node.meta))
        if result is not value or question.times != 1:
            raise _ChangesError(node)


def _same(argument: object, own: object) -> bool:
    """Tell whether an argument is the original one: by identity of its parts, constants by value."""
    if argument is own:
        return True
    if isinstance(own, (list, tuple)):
        if not isinstance(argument, (list, tuple)) or len(argument) != len(own):
            return False
        return all(map(_same, argument, own))
    if isinstance(own, dict):
        if not isinstance(argument, dict) or argument.keys() != own.keys():
            return False
        return all(_same(argument[key], own[key]) for key in own)
    if type(argument) is not type(own) or not isinstance(own, (int, float, str)):
        return False
    return argument == own
