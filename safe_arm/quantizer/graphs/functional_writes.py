"""Turn each write into a view, a buffer or an input into a value of its own, which no pass loses (T26)."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_arg

from safe_arm.core.doubts import COUNTER
from safe_arm.core.exceptions import attempted
from safe_arm.core.island import graph_modules, op_name
from safe_arm.quantizer.graphs.graph_edits import add_call, tensor_of
from safe_arm.quantizer.graphs.named_sizes import name_sizes
from safe_arm.quantizer.graphs.operator_schemas import (
    is_mutable,
    reshapes_in_place,
    schema_of,
    written_arguments,
)
from safe_arm.quantizer.graphs.own_writes import without_writing
from safe_arm.quantizer.graphs.views_written import NotWritableError, written_back

#: The warning about a write that is lost.
LOST_WRITE = "what is written in place into {} is lost when it is quantised: return it, or use torch.cat"
_ATEN = torch.ops.aten
_OUTSIDE = ("get_attr", "placeholder")


def write_functionally(model: GraphModule) -> list[str]:
    """Replace the writes in place that stock's passes lose by values, and by one copy for each buffer.

    Conversion puts Q and DQ between ``y`` and its view, so that ``y[:, :2] = x`` goes into what they give and ``y``
    stays as it was; and of ``self.state.add_(x)`` a pass before annotation keeps the sum and not the state
    (executorch/backends/arm/_passes/rewrite_inplace_arithmetic_pass.py). Writes into values of one name alone survive,
    and a graph that has no others is left as it is.

    Args:
        model: a float graph before annotation, the branches of its control flow included; changed in place.

    Returns:
        What is lost all the same: writes into views for which there is no operator the other way, and into inputs,
        which stock's passes lose however it is said.
    """
    lost: list[str] = []
    for module in graph_modules(model):
        aliases = _Aliases(module.graph)
        writes = []
        for node in module.graph.nodes:
            if _is_write(node) and aliases.is_read(node):
                writes.append(node)
        for root in dict.fromkeys(map(aliases.root, writes)):
            if root.op == "placeholder":
                lost.append(f"the input {root.name}")
        if any(aliases.reach_further(write) for write in writes):
            try:
                _Functional(module, writes, aliases).run()
            except NotWritableError as error:
                lost.append(str(error))
    return lost


def _is_write(node: Node) -> bool:
    """Return whether an operator writes over the elements of its first argument and nothing else."""
    if node.op != "call_function":
        return False
    if not is_mutable(node):
        return False
    if reshapes_in_place(node):
        return False
    first = node.args[0]
    return isinstance(first, Node) and written_arguments(node) == [first]


def _viewed(node: Node) -> Node | None:
    """Return the node whose memory a node's value is, or is a view of; None for values of their own.

    An element of several views is one of the operator that gives them.
    """
    if node.op != "call_function":
        return None
    if not node.args:
        return None
    first = node.args[0]
    if not isinstance(first, Node):
        return None
    gives_views = _is_view(first if node.target is operator.getitem else node)
    return first if gives_views else None


def _is_view(node: Node) -> bool:
    """Return whether an operator gives views of its first argument; a reshape may, or may copy."""
    schema = schema_of(node)
    if schema is None:
        return False
    if not schema.returns:
        return False
    if schema.returns[0].alias_info is None:
        return False
    before = tensor_of(node.args[0])
    after = tensor_of(node)
    if schema.is_mutable or before is None or after is None:
        return True  # It wrote its argument; or it gives several views, as a split.
    return _share_memory(before, after) or _share_memory(before, _given_by(node))


def _share_memory(first: Tensor, second: object) -> bool:
    if not isinstance(second, Tensor):
        return False
    return first.untyped_storage()._cdata == second.untyped_storage()._cdata


def _given_by(node: Node) -> object:
    """Return the fake value of an operator, computed anew: a program that was loaded has noted values apart."""
    noted: Any = map_arg((node.args, node.kwargs), lambda each: each.meta.get("val"))
    arguments, named = noted
    target: Any = node.target
    with torch.no_grad():
        return attempted(target, *arguments, **named)


class _Aliases:
    """The values of a graph that share memory."""

    def __init__(self, graph: Graph) -> None:
        self.viewed: dict[Node, Node] = {}
        attributes: dict[object, Node] = {}
        for node in graph.nodes:
            viewed = _viewed(node)
            if node.op == "get_attr":
                first = attributes.setdefault(node.target, node)
                viewed = None if first is node else first
            if viewed is not None:
                self.viewed[node] = viewed
        self._order = {node: index for index, node in enumerate(graph.nodes)}
        self._by_root: dict[Node, list[Node]] = {}
        for node in self.viewed:
            self._by_root.setdefault(self.root(node), []).append(node)

    def root(self, node: Node) -> Node:
        """Return the value whose memory a value is, or is a view of."""
        while node in self.viewed:
            node = self.viewed[node]
        return node

    def is_read(self, write: Node) -> bool:
        """Return whether anything but writes reads what is written: this call, or the next one.

        No call reads how many batches a norm has seen.
        """
        root = self.root(write)
        if root.op == "get_attr" and not str(root.target).endswith(COUNTER):
            return True
        for node in (root, *self._by_root.get(root, ())):
            for user in node.users:
                if not _is_write(user) or user.args[0] is not node:
                    return True
        return False

    def reach_further(self, write: Node) -> bool:
        """Return whether a write is read, or kept, elsewhere than in the value that it gives."""
        root = self.root(write)
        if any(self._order[user] > self._order[write] for user in root.users):
            return True
        others = self._by_root.get(root, [])
        if root.op == "get_attr":
            assigned = op_name(write) == "aten::copy_" and write.args[0] is root
            return not assigned or any(node.users for node in others)
        return any(not _is_write(node) for node in others)


class _Functional:
    """A graph that is rewritten: the nodes that hold the values of the old graph now.

    Each write into a root makes a new version of it; a view that was made of an older version is made anew.
    """

    def __init__(
        self, module: GraphModule, writes: list[Node], aliases: _Aliases
    ) -> None:
        self._module = module
        self._graph = module.graph
        self._writes = writes
        self._viewed = aliases.viewed
        self._root = aliases.root
        self._latest: dict[Node, Node] = {}
        self._versions: dict[Node, int] = {}
        self._views: dict[Node, tuple[int, Node]] = {}
        self._at = self._graph.output_node()

    def run(self) -> None:
        end = self._graph.output_node()
        for node in list(self._graph.nodes):
            if node.op not in _OUTSIDE:
                self._rewrite(node)
        for root, value in self._latest.items():
            if root.op == "get_attr":
                with self._graph.inserting_before(end):
                    copy = self._graph.call_function(_ATEN.copy_.default, (root, value))
                copy.meta = dict(root.meta)
        for node in reversed(self._writes):
            self._graph.erase_node(node)
        self._graph.eliminate_dead_code()
        name_sizes(self._module)
        self._module.recompile()

    def _rewrite(self, node: Node) -> None:
        """Let a node of the old graph read the values that are current, and note what it writes."""
        self._at = node
        if reshapes_in_place(node):
            node.target = _without_writing(node)
        if node in self._writes:
            self._store(self._viewed[node], self._written(node))
            return
        version = self._version(node)
        node.args, node.kwargs = self._values((node.args, node.kwargs))
        self._views[node] = version, node

    def _version(self, node: Node) -> int:
        """Return how often the memory of a value was written."""
        return self._versions.get(self._root(node), 0)

    def _value(self, node: Node) -> Node:
        """Return the node that holds a value of the old graph now; a view of what was written since is made anew."""
        if node not in self._viewed:
            return self._latest.get(node, node)
        version, view = self._views.get(node, (-1, node))
        if version != self._version(node):
            view = self._value(self._viewed[node])
            if node not in self._writes and node.op == "call_function":
                view = self._made(node.target, view, *node.args[1:], **node.kwargs)
            self._views[node] = self._version(node), view
        return view

    def _store(self, node: Node, value: Node) -> None:
        """Give a node of the old graph a value from now on, and with it the tensor that it is a view of."""
        if node not in self._viewed:
            self._latest[node] = self._laid_out(value, node.meta["val"])
            self._versions[node] = self._versions.get(node, 0) + 1
            return
        source = self._viewed[node]
        if node in self._writes or node.op == "get_attr":
            self._store(source, value)
        else:
            view = node
            index = None
            if node.target is operator.getitem:
                view, source, index = source, self._viewed[source], node.args[1]
            assert index is None or isinstance(index, int)
            whole = self._value(source)
            self._store(source, written_back(self._made, view, index, whole, value))
        self._views[node] = self._version(node), value

    def _laid_out(self, value: Node, like: Tensor) -> Node:
        """Return a value that views may be taken of as of another one, whose memory was written in place."""
        now = value.meta["val"]
        if now.stride() == like.stride():
            return value
        if now.is_contiguous() and like.is_contiguous():
            return value
        order = sorted(range(like.dim()), key=like.stride, reverse=True)
        back = [order.index(dim) for dim in range(like.dim())]
        contiguous = torch.contiguous_format
        turned = self._made(_ATEN.permute.default, value, order)
        packed = self._made(_ATEN.clone.default, turned, memory_format=contiguous)
        return self._made(_ATEN.permute.default, packed, back)

    def _written(self, write: Node) -> Node:
        """Return the value that a write gives its target, of the target's shape and dtype."""
        target, *args = self._values(write.args)
        like = target.meta["val"]
        name = op_name(write).removeprefix("aten::")
        assigns = name in ("copy_", "fill_")
        if assigns and isinstance(args[0], Node):
            value = args[0]
        elif name in ("fill_", "zero_"):
            value = self._made(_ATEN.full_like.default, target, *(args or [0]))
        else:
            kwargs = self._values(write.kwargs)
            value = self._made(_without_writing(write), target, *args, **kwargs)
        if value.meta["val"].dtype != like.dtype:
            value = self._made(_ATEN.to.dtype, value, like.dtype)
        if value.meta["val"].shape != like.shape:
            value = self._made(_ATEN.expand.default, value, list(like.shape))
        return value

    def _values(self, arguments: Any) -> Any:
        return torch.fx.map_arg(arguments, self._value)

    def _made(self, target: Any, *args: Any, **kwargs: Any) -> Node:
        """Write an operator before the one that is being replaced."""
        with self._graph.inserting_before(self._at):
            node = add_call(self._graph, target, *args, **kwargs)
        for key in ("stack_trace", "nn_module_stack"):
            if key in self._at.meta:
                node.meta[key] = self._at.meta[key]
        return node


def _without_writing(write: Node) -> torch._ops.OpOverload:
    """Return the operator that gives what another one writes."""
    target = without_writing(write)
    if target is None:
        raise NotWritableError(f"{write.name} ({op_name(write)})")
    return target
