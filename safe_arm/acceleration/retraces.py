"""Re-trace a graph with the shortcuts of this thread, using a tracer and interpreters that the pass has meanwhile.

Of each operator stock takes the arguments apart as trees three times, and checks of every number in them whether it is
a parameter, a tensor, a module or a symbol; the multipliers of a rescale are a list with an entry for each channel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any

import torch
from torch._ops import OpOverload
from torch.fx import GraphModule, Proxy
from torch.fx.immutable_collections import immutable_dict, immutable_list
from torch.fx.node import Target
from torch.utils._pytree import tree_map_only

from safe_arm._compat.upstream import ExportPass, NodeMetadata, PassResult, ProxyValue
from safe_arm.acceleration import fake_values, idle_passes
from safe_arm.acceleration.shortcuts import any_taken
from safe_arm.core.context import attributes_set

Call = Callable[[ExportPass, GraphModule], PassResult]

#: Types of arguments that are what they are, in every graph.
_PLAIN = frozenset((int, float, bool, str, type(None), torch.dtype))
_LISTS = (list, immutable_list)
_DICTIONARIES = (dict, immutable_dict)
#: The class that defines ``call``, through which every pass re-traces.
BASE: type = next(cls for cls in ExportPass.__mro__ if "call_operator" in vars(cls))


class ExportInterpreter(ExportPass.ExportInterpreter):
    """The interpreter of a pass that takes shortcuts; histories have its name, which is stock's."""

    def run(self, *args: Any, **kwargs: Any) -> Any:
        # Stock makes a tracer and an evaluator for each graph and branch.
        tracer, evaluator = self.callback.tracer, self.callback.interpreter
        tracer.create_arg = taken_plainly(tracer.create_arg)
        evaluator.call_function = fake_values.remembering(evaluator.call_function)
        return super().run(*args, **kwargs)


def taken_plainly(create_arg: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Wrap a tracer's making of a node's argument: numbers are taken as they are, the value of a node is that node."""

    def taken(a: Any) -> Any:
        kind = type(a)
        if kind in _PLAIN:
            return a
        if kind is Proxy:
            return a.node
        if kind in _LISTS and _PLAIN.issuperset(map(type, a)):
            return list(a)
        return create_arg(a)

    return taken


def read(arguments: Any, attribute: str) -> Any:
    """Return arguments of an operator with an attribute of each traced value in its place.

    Args:
        arguments: tuples, lists and dictionaries of anything.
        attribute: ``data``, the fake value, or ``proxy``, the node.
    """
    kind = type(arguments)
    if kind is ProxyValue:
        return getattr(arguments, attribute)
    if kind in _PLAIN or (kind in _LISTS and _PLAIN.issuperset(map(type, arguments))):
        return arguments
    if kind is tuple or kind in _LISTS:
        return kind([read(each, attribute) for each in arguments])
    if kind in _DICTIONARIES:
        return kind({name: read(each, attribute) for name, each in arguments.items()})
    return tree_map_only(ProxyValue, attrgetter(attribute), arguments)


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
            """Evaluate an operator and write it down, as ``ExportPass._fx`` does."""
            evaluate = getattr(self.interpreter, kind)
            value = evaluate(target, read(args, "data"), read(kwargs, "data"))
            name = None
            if isinstance(target, OpOverload):
                packet = target.overloadpacket.__name__
                name = self.tracer.graph._target_to_str(packet)
            arguments = read(args, "proxy"), read(kwargs, "proxy")
            proxy = self.tracer.create_proxy(kind, target, *arguments, name=name)
            proxy.node.meta.update(meta.data)
            self.tracer.set_metadata(proxy.node, value)
            return ProxyValue(value, proxy)

        replaced: dict[str, Any] = {"ExportInterpreter": ExportInterpreter}
        if own._fx is ExportPass._fx:
            replaced["_fx"] = trace
        with attributes_set(self, **replaced):
            return stock(self, graph_module)

    return call
