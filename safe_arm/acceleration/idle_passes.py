"""A pass that would change nothing re-traces nothing: one look at each operator tells.

On the way to the edge program some seven of ExecuTorch's passes re-trace the whole graph and leave it as it was. Each
rewrites single operators in its ``call_operator``. Here that method is asked about every operator with the values at
hand; if it hands them all on as they are, and nobody touched the graph since it was traced last, it is what a re-trace
would give.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
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
from safe_arm.core.exceptions import Caught, attempted


@dataclass
class Traced:
    """The graph module that was traced last, and what it was made of then."""

    graph_module: GraphModule | None = None
    parts: list[Any] = field(default_factory=list)

    def is_still(self, graph_module: GraphModule) -> bool:
        """Whether it is this one, and nobody touched it."""
        if self.graph_module is not graph_module:
            return False
        parts = _parts(graph_module)
        return len(parts) == len(self.parts) and all(
            map(operator.is_, parts, self.parts)
        )


@dataclass
class Question:
    """An operator that a pass is asked about, its values and its own value; and how often the pass handed it on."""

    target: object
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    value: ProxyValue
    times: int = 0


class _ChangesError(Exception):
    """The pass does something other than handing the operator on."""


#: Where ``call`` and ``call_operator`` are defined.
BASE: type = next(cls for cls in ExportPass.__mro__ if "call_operator" in vars(cls))


def skipped() -> AbstractContextManager[None]:
    """Skip what would re-trace without change, in this thread, while the block runs."""
    return taking(last_traced=Traced())


def skipping(stock: Callable[..., PassResult]) -> Callable[..., PassResult]:
    """Wrap a pass's run: in the block of ``skipped`` one that would change nothing re-traces nothing."""

    def call(self: ExportPass, graph_module: GraphModule) -> PassResult:
        last: Traced | None = shortcuts().last_traced
        if last is None:
            return stock(self, graph_module)
        if (
            last.is_still(graph_module)
            and _rewrites_operators_only(type(self))
            and not isinstance(attempted(_hand_on_all, self, graph_module), Caught)
        ):
            return PassResult(graph_module, True)
        result = stock(self, graph_module)
        last.graph_module, last.parts = result.graph_module, _parts(result.graph_module)
        return result

    return call


def asking(stock: Callable[..., ProxyValue]) -> Callable[..., ProxyValue]:
    """Wrap what a pass hands operators on to: while it is asked about one, it learns whether it does."""

    def call_operator(
        self: ExportPass,
        op: object,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        meta: NodeMetadata,
    ) -> ProxyValue:
        asked: Question | None = shortcuts().question
        if asked is None:
            return stock(self, op, args, kwargs, meta)
        if (
            op is not asked.target
            or not _same(args, asked.args)
            or not _same(dict(kwargs), dict(asked.kwargs))
        ):
            raise _ChangesError(op)
        asked.times += 1
        return asked.value

    return call_operator


def _parts(graph_module: GraphModule) -> list[Any]:
    """All that a re-trace reads of a graph; arguments are immutable, what is replaced is another object."""
    nodes = graph_module.graph.nodes
    return [
        part
        for n in nodes
        for part in (n, n.name, n.target, n.args, n.kwargs, n.meta.get("val"))
    ]


def _rewrites_operators_only(pass_class: type) -> bool:
    """Whether all that a pass does to a graph in a re-trace, it does in ``call_operator``."""
    own = [
        cls
        for cls in pass_class.__mro__
        if cls is not ExportPass and issubclass(cls, ExportPass)
    ]
    overridden = {
        name
        for cls in own
        for name in vars(cls)
        if hasattr(ExportPass, name) and not name.startswith("__")
    }
    return overridden <= {"call", "call_operator", "_abc_impl"}


def _hand_on_all(a_pass: ExportPass, graph_module: GraphModule) -> None:
    """Show a pass every operator of a graph and return if it hands all of them on as they are."""
    values = {
        node: ProxyValue(node.meta.get("val"), node)
        for node in graph_module.graph.nodes
    }
    for node, value in values.items():
        if node.op in ("placeholder", "output") or node.target is operator.getitem:
            continue
        if node.op != "call_function" or not isinstance(
            node.target, (OpOverload, EdgeOpOverload)
        ):
            raise _ChangesError(node)
        args, kwargs = map_arg((node.args, node.kwargs), values.__getitem__)
        question = Question(node.target, args, kwargs, value)
        with taking(question=question):
            result = a_pass.call_operator(
                node.target, args, kwargs, NodeMetadata(node.meta)
            )
        if result is not value or question.times != 1:
            raise _ChangesError(node)


def _same(given: object, own: object) -> bool:
    """Whether an argument is the one that was asked about, by identity down to its parts, constants by value."""
    if isinstance(own, (list, tuple)):
        return (
            isinstance(given, (list, tuple))
            and len(given) == len(own)
            and all(map(_same, given, own))
        )
    if isinstance(own, dict):
        return (
            isinstance(given, dict)
            and given.keys() == own.keys()
            and all(_same(given[k], own[k]) for k in own)
        )
    return given is own or (
        type(given) is type(own) and isinstance(own, (int, float, str)) and given == own
    )
