"""What is written into a view, a buffer or an input is written as a value of its own, which no pass loses (T26)."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import Tensor
from torch.fx import Graph, GraphModule, Node
from torch.utils._pytree import tree_map

from safe_arm.core.island import op_name
from safe_arm.quantizer.named_sizes import name_sizes
from safe_arm.quantizer.views_written import NotWritableError, written_back

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
    for module in model.modules():
        if isinstance(module, GraphModule):
            aliases = _Aliases(module.graph)
            writes = [
                node
                for node in module.graph.nodes
                if _is_write(node) and aliases.is_read(node)
            ]
            roots = dict.fromkeys(map(aliases.root, writes))
            lost += [
                f"the input {root.name}" for root in roots if root.op == "placeholder"
            ]
            if any(aliases.reach_further(write) for write in writes):
                try:
                    _Functional(module, writes, aliases).run()
                except NotWritableError as error:
                    lost.append(str(error))
    return lost


def _is_write(node: Node) -> bool:
    """Tell whether an operator writes over the elements of its first argument and nothing else."""
    if _reshapes_in_place(node):
        return False
    schema = getattr(node.target, "_schema", None)
    if (
        node.op != "call_function"
        or schema is None
        or not schema.is_mutable
        or not isinstance(node.args[0], Node)
    ):
        return False
    written = [
        argument.alias_info is not None and argument.alias_info.is_write
        for argument in schema.arguments
    ]
    return written[0] and not any(written[1:])


def _reshapes_in_place(node: Node) -> bool:
    """Tell whether an operator makes its first argument a view of itself, as ``unsqueeze_`` and ``detach_`` do."""
    return torch.Tag.inplace_view in getattr(node.target, "tags", ())


def _viewed(node: Node) -> Node | None:
    """Return the node whose memory a node's value is, or is a view of; None for values of their own.

    An element of several views is one of the operator that gives them.
    """
    first = node.args[0] if node.op == "call_function" and node.args else None
    if not isinstance(first, Node):
        return None
    if node.target is operator.getitem:
        return first if _is_view(first) else None
    return first if _is_view(node) else None


def _is_view(node: Node) -> bool:
    """Tell whether an operator gives views of its first argument; a reshape may, or may copy."""
    schema = getattr(node.target, "_schema", None)
    if schema is None or not schema.returns or schema.returns[0].alias_info is None:
        return False
    source = node.args[0]
    before, after = (
        source.meta.get("val") if isinstance(source, Node) else None,
        node.meta.get("val"),
    )
    if (
        schema.is_mutable
        or not isinstance(before, Tensor)
        or not isinstance(after, Tensor)
    ):
        return True  # what it wrote; or several views, of a split
    return before.untyped_storage()._cdata == after.untyped_storage()._cdata


class _Aliases:
    """Which values of a graph are the memory of which others."""

    def __init__(self, graph: Graph) -> None:
        self.viewed = {
            node: viewed
            for node in graph.nodes
            if (viewed := _viewed(node)) is not None
        }
        attributes: dict[object, Node] = {}
        for node in graph.find_nodes(op="get_attr"):
            if attributes.setdefault(node.target, node) is not node:
                self.viewed[node] = attributes[node.target]
        self._order = {node: index for index, node in enumerate(graph.nodes)}
        self._by_root: dict[Node, list[Node]] = {}
        for node in self.viewed:
            self._by_root.setdefault(self.root(node), []).append(node)

    def root(self, node: Node) -> Node:
        while node in self.viewed:
            node = self.viewed[node]
        return node

    def _same(self, node: Node) -> list[Node]:
        """Return all values that are the memory of one, the root first."""
        return [self.root(node), *self._by_root.get(self.root(node), ())]

    def is_read(self, write: Node) -> bool:
        """Tell whether anything but writes reads what is written, as nothing does how many batches a norm has seen."""
        return any(
            not _is_write(user) or user.args[0] is not node
            for node in self._same(write)
            for user in node.users
        )

    def reach_further(self, write: Node) -> bool:
        """Tell whether a write is read, or kept, elsewhere than in the value that it gives."""
        root, *same = self._same(write)
        later = any(self._order[user] > self._order[write] for user in root.users)
        if root.op == "get_attr":
            assigned = op_name(write) == "aten::copy_" and write.args[0] is root
            return later or not assigned or any(node.users for node in same)
        return later or any(not _is_write(node) for node in same)


class _Functional:
    """One graph on its way: for each value of the old graph, which node holds it now."""

    def __init__(
        self, module: GraphModule, writes: list[Node], aliases: _Aliases
    ) -> None:
        self._module, self._graph = module, module.graph
        self._writes, self._viewed, self._root = writes, aliases.viewed, aliases.root
        self._latest: dict[Node, Node] = {}
        self._count: dict[Node, int] = {}
        self._held: dict[Node, tuple[int, Node]] = {}
        self._at = self._graph.output_node()

    def run(self) -> None:
        end = self._graph.output_node()
        for node in [each for each in self._graph.nodes if each.op not in _OUTSIDE]:
            self._at = node
            if _reshapes_in_place(node):
                node.target = _without_writing(node)
            if node in self._writes:
                self._store(self._viewed[node], self._written(node))
                continue
            count = self._count.get(self._root(node), 0)
            node.args, node.kwargs = self._values((node.args, node.kwargs))
            self._held[node] = count, node
        for root, value in self._latest.items():
            if root.op == "get_attr":
                with self._graph.inserting_before(end):
                    self._graph.call_function(
                        _ATEN.copy_.default, (root, value)
                    ).meta = dict(root.meta)
        for node in reversed(self._writes):
            self._graph.erase_node(node)
        self._graph.eliminate_dead_code()
        name_sizes(self._module)
        self._module.recompile()

    def _value(self, node: Node) -> Node:
        """Return what holds the value of a node of the old graph now; a view of what was written since is made anew."""
        if node not in self._viewed:
            return self._latest.get(node, node)
        count, held = self._held.get(node, (-1, node))
        if count != self._count.get(self._root(node), 0):
            held = self._value(self._viewed[node])
            if node not in self._writes and node.op == "call_function":
                held = self._made(node.target, held, *node.args[1:], **node.kwargs)
            self._held[node] = self._count.get(self._root(node), 0), held
        return held

    def _store(self, node: Node, value: Node) -> None:
        """Let a node of the old graph have a value from now on, and what it is a view of the values around it."""
        if node not in self._viewed:
            self._latest[node] = self._laid_out(value, node.meta["val"])
            self._count[node] = self._count.get(node, 0) + 1
            return
        source = self._viewed[node]
        if node in self._writes or node.op == "get_attr":
            self._store(source, value)
        elif node.target is operator.getitem:
            whole, index = self._viewed[source], node.args[1]
            assert isinstance(index, int)
            self._store(
                whole,
                written_back(self._made, source, index, self._value(whole), value),
            )
        else:
            self._store(
                source, written_back(self._made, node, None, self._value(source), value)
            )
        self._held[node] = self._count[self._root(node)], value

    def _laid_out(self, value: Node, like: Tensor) -> Node:
        """Return a value that views may be taken of as of another one, whose memory was written in place."""
        now = value.meta["val"]
        if now.stride() == like.stride() or (
            now.is_contiguous() and like.is_contiguous()
        ):
            return value
        order = sorted(range(like.dim()), key=like.stride, reverse=True)
        turned = self._made(_ATEN.permute.default, value, order)
        packed = self._made(
            _ATEN.clone.default, turned, memory_format=torch.contiguous_format
        )
        return self._made(
            _ATEN.permute.default,
            packed,
            [order.index(dim) for dim in range(like.dim())],
        )

    def _written(self, write: Node) -> Node:
        """Return the value that a write gives its target, of the target's shape and dtype."""
        target: Node
        args: list[Any]
        target, *args = self._values(write.args)
        like = target.meta["val"]
        name = op_name(write).removeprefix("aten::")
        if name == "copy_":
            value = args[0]
        elif name in ("fill_", "zero_") and not any(
            isinstance(each, Node) for each in args
        ):
            value = self._made(_ATEN.full_like.default, target, *(args or [0]))
        elif name == "fill_":
            value = args[0]
        else:
            value = self._made(
                _without_writing(write), target, *args, **self._values(write.kwargs)
            )
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
            node = self._graph.call_function(target, args, kwargs)
        values, named = tree_map(
            lambda each: each.meta["val"] if isinstance(each, Node) else each,
            (args, kwargs),
        )
        node.meta = {
            key: self._at.meta[key]
            for key in ("stack_trace", "nn_module_stack")
            if key in self._at.meta
        }
        node.meta["val"] = target(*values, **named)
        return node


def _without_writing(write: Node) -> torch._ops.OpOverload:
    """Return the operator that gives what another one writes."""
    packet = getattr(
        _ATEN, op_name(write).removeprefix("aten::").removesuffix("_"), None
    )
    found = getattr(packet, write.target._overloadname, None)  # type: ignore[union-attr]
    if found is None:
        raise NotWritableError(f"{write.name} ({op_name(write)})")
    return found
