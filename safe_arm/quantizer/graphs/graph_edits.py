"""Small steps that several corrections of a float graph share."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeGuard

import torch
from torch import Tensor
from torch._guards import detect_fake_mode
from torch.fx import Graph, GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.node import Target, map_arg
from torch.utils._pytree import tree_flatten, tree_unflatten

from safe_arm.core.attributes import set_attribute, stored_value
from safe_arm.core.calls import called, example_value
from safe_arm.core.island import call_functions, graph_modules, op_name
from safe_arm.core.operators import VIEWS, ElementOrigin, named, operators

_ATEN = torch.ops.aten

#: Operators whose results are elements of their first argument, chosen by their places.
MOVES = VIEWS | operators(ElementOrigin.PART)
#: Spellings of a reshape that take no copy.
_VIEWED = named("view _unsafe_view")


def tensor_of(node: object) -> Tensor | None:
    """Return the fake tensor that a node gives; None for anything else."""
    value = node.meta.get("val") if isinstance(node, Node) else None
    return value if isinstance(value, Tensor) else None


def static_sizes(node: object) -> list[int] | None:
    """Return the sizes of a tensor; None if one of them is dynamic, or for anything else."""
    value = tensor_of(node)
    if value is None:
        return None
    return list(value.shape) if is_static(value) else None


def is_static(x: Tensor) -> bool:
    """Tell whether no size of a tensor is dynamic."""
    return all(isinstance(size, int) for size in x.shape)


def depends_on_input(value: object) -> bool:
    """Return whether an input of the graph is among what a value is computed of; numbers depend on none."""
    pending = [value]
    seen = set()
    while pending:
        node = pending.pop()
        if not isinstance(node, Node) or node in seen:
            continue
        if node.op == "placeholder":
            return True
        seen.add(node)
        pending += node.all_input_nodes
    return False


def pair(numbers: list[int]) -> list[int]:
    """Return a number for rows and one for columns; one in a list is that of both."""
    return [numbers[0], numbers[-1]]


def lower_bound(clamp: Node) -> float | None:
    """Return the number that is the only bound of a clamp; None for any other, and for any other operator."""
    if clamp.target is not _ATEN.clamp.default:
        return None
    low, high = bounds_of(clamp)
    is_lone = high is None and isinstance(low, (int, float))
    return float(low) if is_lone else None  # type: ignore[arg-type]


def bounds_of(clamp: Node) -> tuple[object, object]:
    """Return the lower and the upper bound of a clamp, None for one that it lacks."""
    low, high = (*clamp.args[1:], None, None)[:2]
    return clamp.kwargs.get("min", low), clamp.kwargs.get("max", high)


def moved_from(node: Node, moves: frozenset[str] = MOVES) -> Node:
    """Return the value whose elements a node shows: all or some, in this order or another, or as some moves do."""
    while op_name(node) in moves:
        source = node.all_input_nodes[0]
        node = source
    return node


def is_branch(model: GraphModule) -> bool:
    """Tell whether a graph is that of a branch of control flow, and not that of a whole net as it was exported."""
    return not hasattr(model.graph._codegen, "pytree_info")


def calls(model: GraphModule, *targets: Target) -> Iterator[Any]:
    """Give the calls of operators in a graph, its branches not included, in the order of the operators."""
    for target in targets:
        yield from model.graph.find_nodes(op="call_function", target=target)


def rewrite(
    model: GraphModule, write: Callable[[Node], bool | None], *targets: Target
) -> None:
    """Write calls of operators with others.

    Args:
        model: a float graph, its branches not included; changed in place.
        write: writes one call, and tells whether it leaves operators behind that nothing reads.
        targets: the operators, one after the other.
    """
    leaves_dead_code = False
    for node in calls(model, *targets):
        leaves_dead_code = bool(write(node)) or leaves_dead_code
    if leaves_dead_code:
        model.graph.eliminate_dead_code()
    model.recompile()


def rewrite_all(
    model: GraphModule, write: Callable[[Node], bool | None], *targets: Target
) -> None:
    """Write calls of operators with others, in the branches of control flow, too."""
    for module in graph_modules(model):
        rewrite(module, write, *targets)


def rewrite_nodes(model: GraphModule, write: Callable[[Node], bool]) -> None:
    """Write operators of a graph with others.

    Args:
        model: a float graph, its branches not included; changed in place.
        write: writes one operator, and tells whether it did.
    """
    is_changed = False
    for node in list(model.graph.nodes):
        if write(node):
            is_changed = True
    if is_changed:
        model.graph.eliminate_dead_code()
        model.recompile()


def replace_node(node: Node, written: Node) -> None:
    """Let all that reads a node read another, and erase it."""
    node.replace_all_uses_with(written)
    node.graph.erase_node(node)


def replace_results(node: Node, written: Node | Sequence[Node]) -> bool:
    """Let all that reads an operator read another, or each of its results one of several; tell whether all of it was.

    The operator is erased then.
    """
    if isinstance(written, Node):
        replace_node(node, written)
        return True
    return _replace_elements(node, written)


def _replace_elements(node: Node, written: Sequence[Node]) -> bool:
    """Replace what is picked of an operator's results; tell whether all of it was written."""
    picks: dict[Node, Any] = {}
    for pick in node.users:
        if pick.target is not operator.getitem:
            return False
        picks[pick] = pick.args[1]
    for pick, place in picks.items():
        if pick.users and place >= len(written):
            return False
    for pick, place in picks.items():
        if pick.users:
            pick.replace_all_uses_with(written[place])
        node.graph.erase_node(pick)
    node.graph.erase_node(node)
    return True


def readers_of(value: Node, moves: frozenset[str]) -> Iterator[Node]:
    """Give the operators that read a value or what it is moved to, but for those that move it."""
    moved = [value]
    for each in moved:
        for reader in each.users:
            if op_name(reader).removesuffix("_") not in moves:
                yield reader
            elif reader not in moved:
                moved.append(reader)


def either_way(node: Node) -> Iterator[tuple[Node, Node]]:
    """Give the two operands of an operator in both orders, if both are computed; an alpha is no operand."""
    left, right = node.args[:2]
    if isinstance(left, Node) and isinstance(right, Node) and not node.kwargs:
        yield left, right
        yield right, left


def is_call(value: object, target: object) -> TypeGuard[Node]:
    """Tell whether a value is that of an operator."""
    return isinstance(value, Node) and value.target is target


def operands_of(value: object, target: object) -> tuple[Any, Any]:
    """Return the first two operands of an operator, None for one that it lacks; None twice for any other value."""
    if not is_call(value, target):
        return None, None
    first, second = (*value.args, None, None)[:2]
    return first, second


def squared(value: object) -> Node | None:
    """Return what a product multiplies by itself; None for any other value."""
    left, right = operands_of(value, _ATEN.mul.Tensor)
    return left if left is right else None


def is_stored(value: object) -> TypeGuard[Node]:
    """Tell whether a value is read from the module, and not computed."""
    return isinstance(value, Node) and value.op == "get_attr"


def stored_tensor(node: object) -> Tensor | None:
    """Return the tensor of the graph's module that a node reads; None for any other."""
    value = stored_value(node) if is_stored(node) else None
    return value if isinstance(value, Tensor) else None


def stored_number(node: object) -> float | None:
    """Return a number, or the only element of a tensor that a node reads; None for any other."""
    if isinstance(node, (int, float)):
        return float(node)
    value = stored_tensor(node)
    if value is None or value.numel() != 1:
        return None
    return float(value.detach())


def is_read_once(value: object) -> TypeGuard[Node]:
    """Tell whether a value is computed or read from the module, and one node alone reads it."""
    return isinstance(value, Node) and len(value.users) == 1


def has_dtype(node: object, *dtypes: torch.dtype) -> TypeGuard[Node]:
    """Tell whether a node gives a tensor of one of some dtypes."""
    value = tensor_of(node)
    return value is not None and value.dtype in dtypes


def is_float32(node: object) -> TypeGuard[Node]:
    """Tell whether a node gives a tensor of floats of 32 bits."""
    return has_dtype(node, torch.float32)


def add_call(
    graph: Graph, target: Callable[..., Any], *args: Any, **kwargs: Any
) -> Node:
    """Write an operator at the insertion point of a graph, with its fake value."""
    node = graph.call_function(target, args, kwargs)
    node.meta["val"] = called(node, example_value)
    return node


def add_operator(
    target: Callable[..., Any], value: Node, *args: Any, **kwargs: Any
) -> Node:
    """Write an operator whose first operand is a value, at the insertion point of its graph."""
    return add_call(value.graph, target, value, *args, **kwargs)


def add_constant(
    model: GraphModule,
    name: str,
    value: Tensor,
    like: Any,
) -> Node:
    """Store a tensor and read it at the insertion point; ``like`` is a fake tensor of the graph."""
    set_attribute(model, name, value)
    node = model.graph.get_attr(name)
    node.meta["val"] = like.fake_mode.from_tensor(value, static_shapes=True)
    return node


#: The arguments of a slice of all elements, in the order of its schema.
_WHOLE_SLICE = (None, 0, 0, sys.maxsize)


class Writer:
    """Writes operators before one of a float graph, each with the marks of that one.

    Args:
        node: the operator in whose place they are written. Settings for its module or its name hold for them too.
        marks: another operator whose marks they have.
    """

    def __init__(self, node: Node, marks: Node | None = None) -> None:
        self._node = node
        self._marks = marks or node

    def __call__(self, target: Callable[..., Any], *args: Any, **kwargs: Any) -> Node:
        """Write an operator, with its fake value."""
        with self._node.graph.inserting_before(self._node):
            written = add_call(self._node.graph, target, *args, **kwargs)
        return self._marked(written, written.meta["val"])

    def _marked(self, written: Node, value: object) -> Node:
        written.meta = {**self._marks.meta, "val": value}
        return written

    def compute(
        self,
        function: Callable[..., Any],
        arguments: Sequence[Any],
        keywords: Mapping[str, Any] | None = None,
        *,
        is_whole: bool = True,
    ) -> Any:
        """Write the operators of a function of tensors; return what it returns, with nodes in place of tensors.

        Args:
            function: is called once, on fake values.
            arguments: its arguments, nodes in place of tensors.
            keywords: its arguments by name.
            is_whole: record the operators that torch takes apart, such as a linear layer, as they are.
        """
        flat, spec = tree_flatten((tuple(arguments), dict(keywords or {})))
        sources = [each for each in flat if isinstance(each, Node)]

        def call(*values: Any) -> Any:
            rest = iter(values)
            given = [next(rest) if isinstance(each, Node) else each for each in flat]
            positional, by_name = tree_unflatten(given, spec)
            return function(*positional, **by_name)

        fakes = [source.meta["val"] for source in sources]
        mode = detect_fake_mode(fakes)
        assert mode is not None
        with mode, torch.no_grad():
            traced = make_fx(call, pre_dispatch=is_whole)(*fakes)
        return self._copy(traced, sources)

    def _copy(self, traced: GraphModule, sources: list[Node]) -> Any:
        """Write the operators of a traced graph, whose inputs are some nodes; return its outputs."""
        graph = traced.graph
        graph.eliminate_dead_code()
        inputs = graph.find_nodes(op="placeholder")
        copies: dict[Node, Node] = dict(zip(inputs, sources, strict=True))
        for node in call_functions(traced):
            target: Any = node.target
            if op_name(node) in _VIEWED:
                # Quantised values may have other strides, of which there is no view.
                target = _ATEN.reshape.default
            args, kwargs = map_arg((node.args, node.kwargs), copies.__getitem__)
            if target is _ATEN.slice.Tensor:
                # The partitioner knows no slice without an end.
                args = (*args, *_WHOLE_SLICE[len(args) :])
            with self._node.graph.inserting_before(self._node):
                written = self._node.graph.call_function(target, args, kwargs)
            copies[node] = self._marked(written, node.meta["val"])
        return map_arg(graph.output_node().args[0], copies.__getitem__)

    def constant(self, value: Tensor, name: str = "constant") -> Node:
        """Store a tensor in the graph's module and read it."""
        model = self._node.graph.owning_module
        assert model is not None
        like = tensor_of(self._node)
        with self._node.graph.inserting_before(self._node):
            return add_constant(model, f"{name}_{self._node.name}", value, like)

    def read(self, name: object, marks: Node) -> Node:
        """Read a tensor of the graph's module, with the marks and the value of another node."""
        with self._node.graph.inserting_before(self._node):
            read = self._node.graph.get_attr(str(name))
        read.meta = {**marks.meta}
        return read

    def size(self, node: Node, dim: int) -> Any:
        """Return the size of a dimension; where it is dynamic, a node that reads it."""
        size = node.meta["val"].shape[dim]
        if isinstance(size, int):
            return size
        return self(_ATEN.sym_size.int, node, dim)
