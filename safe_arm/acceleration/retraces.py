"""Re-trace a graph with the shortcuts of this thread, using a tracer and interpreters that the pass has meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.fx import GraphModule, Proxy
from torch.fx.node import Target

from safe_arm._compat.upstream import ExportPass, NodeMetadata, PassResult, ProxyValue
from safe_arm.acceleration import fake_values, idle_passes, long_constants
from safe_arm.acceleration.shortcuts import any_taken
from safe_arm.core.context import attributes_set

Call = Callable[[ExportPass, GraphModule], PassResult]

#: Types of arguments that are what they are, in every graph.
_PLAIN = frozenset((int, float, bool, str, type(None), torch.dtype))
#: The class that defines ``call``, through which every pass re-traces.
BASE: type = next(cls for cls in ExportPass.__mro__ if "call_operator" in vars(cls))


class ExportInterpreter(ExportPass.ExportInterpreter):
    """The interpreter of a pass that takes shortcuts; histories have its name, which is stock's."""

    def run(self, *args: Any, **kwargs: Any) -> Any:
        # Stock makes a tracer and an evaluator for each graph and branch.
        tracer, evaluator = self.callback.tracer, self.callback.interpreter
        create_arg = long_constants.taken_whole(tracer.create_arg)
        tracer.create_arg = taken_plainly(create_arg)
        evaluator.call_function = fake_values.remembering(evaluator.call_function)
        return super().run(*args, **kwargs)


def taken_plainly(create_arg: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Wrap a tracer's making of a node's argument: a number is taken as it is, and the value of a node is that node.

    Stock asks of each in six methods whether it is a parameter, a tensor, a module or a symbol.
    """

    def taken(a: Any) -> Any:
        kind = type(a)
        if kind in _PLAIN:
            return a
        if kind is Proxy:
            return a.node
        return create_arg(a)

    return taken


def quickly(stock: Call) -> Call:
    """Wrap a pass's run: it re-traces with the shortcuts of this thread, if there is a change to make."""

    def call(self: ExportPass, graph_module: GraphModule) -> PassResult:
        if not any_taken():
            return stock(self, graph_module)
        return idle_passes.run(_retraced, self, graph_module)

    def _retraced(self: ExportPass, graph_module: GraphModule) -> PassResult:
        own = type(self)
        if own.ExportInterpreter is not ExportPass.ExportInterpreter:
            return stock(self, graph_module)

        def trace(
            kind: str,
            target: Target,
            args: tuple[Any, ...],
            kwargs: Mapping[str, Any],
            meta: NodeMetadata,
        ) -> ProxyValue:
            args, kwargs = long_constants.in_one_piece(args, kwargs)
            return own._fx(self, kind, target, args, kwargs, meta)

        with attributes_set(self, ExportInterpreter=ExportInterpreter, _fx=trace):
            return stock(self, graph_module)

    return call
