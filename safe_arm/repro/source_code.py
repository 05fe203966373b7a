"""Part of an edge graph as Python source that computes it again with ATen operators.

Text that comes from the user's model, names and lines of code, becomes identifiers made of ASCII letters or comments
of printable characters; nothing of it can be executed.
"""

from __future__ import annotations

import base64
import builtins
import keyword
import math
import operator
import re
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from types import NoneType
from typing import Any, TypeAlias

import torch
from executorch.exir.dim_order_utils import get_memory_format
from torch import Tensor
from torch.fx import GraphModule, Node

from safe_arm.core.attributes import stored_value
from safe_arm.core.island import graph_modules, is_marked_quantized, op_name
from safe_arm.core.source_line import source_line

#: Maximum number of elements of a tensor that is written out in numbers.
SPELLED = 8

#: ATen's operators for those of the edge dialect that take dim orders instead of memory formats.
_DIM_ORDER_OPS = {
    "dim_order_ops::_to_dim_order_copy": torch.ops.aten._to_copy.default,
    "dim_order_ops::_clone_dim_order": torch.ops.aten.clone.default,
    "dim_order_ops::_empty_dim_order": torch.ops.aten.empty.memory_format,
}
#: ATen's views for the edge dialect's copies, which would come back with a ``clone`` for every result.
_VIEWS = {
    "aten::split_copy": torch.ops.aten.split.Tensor,
    "aten::split_with_sizes_copy": torch.ops.aten.split_with_sizes.default,
    "aten::unbind_copy": torch.ops.aten.unbind.int,
}
_RESERVED = {"self", "torch", "operator", "math", *dir(builtins), *dir(torch.nn.Module)}
_RESERVED |= {*keyword.kwlist, *keyword.softkwlist}
_PLAIN = (torch.dtype, torch.memory_format, torch.layout)


@dataclass(frozen=True)
class Constant:
    """A tensor that a graph holds.

    Attributes:
        kind: ``"parameter"``, ``"buffer"`` or ``"constant"``.
        name: its name in the user's module.
        value: the tensor.
    """

    kind: str
    name: str
    value: Tensor


#: Returns the tensor that a placeholder holds, None for an input.
ConstantOf: TypeAlias = Callable[[Node], Constant | None]


@dataclass
class Source:
    """Source text and the values that it refers to.

    Attributes:
        body: the statements, the last one returns; not indented.
        functions: definitions of the branches of control flow.
        arguments: the values that come from elsewhere, with their names in the text.
        constants: the tensors the text calls ``self.<name>``.
        marked: true if a statement stands under ``with annotate(QUANTISED)``.
    """

    body: list[str] = field(default_factory=list)
    functions: list[str] = field(default_factory=list)
    arguments: dict[Node, str] = field(default_factory=dict)
    constants: dict[str, Constant] = field(default_factory=dict)
    marked: bool = False


def source_of(
    nodes: Sequence[Node],
    constant_of: ConstantOf,
    taken: Iterable[str],
) -> Source:
    """Write nodes of an edge graph, in their order, as ATen calls.

    Args:
        nodes: operators; those inside the branches of control flow that is among them come with it.
        constant_of: the tensor a placeholder holds, None for an input.
        taken: names the text must not use.

    Raises:
        ValueError: something has no source form.
    """
    writer = _Writer(constant_of, Names(taken))
    inside: set[int] = set()
    for node in nodes:
        # The graphs that control flow runs, and those inside them.
        for branch in map(_held, node.all_input_nodes):
            if isinstance(branch, GraphModule):
                inside.update(id(each.graph) for each in graph_modules(branch))
    unit = [node for node in nodes if id(node.graph) not in inside]
    writer.source.body += writer.statements(unit)
    members = set(unit)
    results = [node for node in unit if not set(node.users) <= members]
    names = ", ".join(map(writer.named, results or unit[-1:]))
    writer.source.body.append(f"return {names}")
    return writer.source


def comment(text: str) -> str:
    """Return one line of printable text that can stand behind a ``#`` and nowhere end the comment."""
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode() for c in text
    )


def literal(value: object, of_node: Callable[[Node], str] | None = None) -> str:
    """Return an expression for an argument of an operator.

    Args:
        value: a number, string, dtype and the like, or lists and tuples of them.
        of_node: writes the nodes among them.

    Raises:
        ValueError: the value has no source form.
    """
    if isinstance(value, Node) and of_node is not None:
        return of_node(value)
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    if type(value) in (bool, int, float, str, NoneType):
        return repr(value)
    if isinstance(value, _PLAIN):
        return str(value)
    if isinstance(value, torch.device):
        return f"torch.device({str(value)!r})"
    if isinstance(value, slice):
        return f"slice{literal((value.start, value.stop, value.step), of_node)}"
    if isinstance(value, dict):
        entries = []
        for key, item in value.items():
            entries.append(f"{literal(key, of_node)}: {literal(item, of_node)}")
        return f"{{{', '.join(entries)}}}"
    if not isinstance(value, (list, tuple)):
        raise ValueError(f"a {type(value).__name__} has no source form")
    items = ", ".join([literal(item, of_node) for item in value])
    if isinstance(value, list):
        return f"[{items}]"
    return f"({items},)" if len(value) == 1 else f"({items})"


class Names:
    """A source of identifiers that gives out each once."""

    def __init__(self, taken: Iterable[str]) -> None:
        self._taken = {*_RESERVED, *taken}

    def new(self, wish: str) -> str:
        """Return an identifier that resembles a wish and is neither taken nor a keyword or a built-in."""
        base = re.sub(r"[^0-9a-zA-Z]+", "_", wish).strip("_") or "value"
        if base[0].isdigit():
            base = f"value_{base}"
        name = base
        count = 0
        while name in self._taken:
            count += 1
            name = f"{base}_{count}"
        self._taken.add(name)
        return name


@dataclass
class _Writer:
    constant_of: ConstantOf
    names: Names
    source: Source = field(default_factory=Source)
    inside_branch: bool = False
    _text: dict[Node, str] = field(default_factory=dict)

    def statements(self, nodes: Sequence[Node]) -> list[str]:
        """Return a line for each node, under a comment with the user's line, marked ones in a ``with`` statement."""
        lines = []
        by_source = groupby(
            nodes, key=lambda node: (source_line(node), is_marked_quantized(node))
        )
        for (where, marked), group in by_source:
            if where:
                lines.append(f"# {comment(where)}")
            indent = ""
            if marked:
                self.source.marked = True
                lines.append("with annotate(QUANTISED):")
                indent = "    "
            for node in group:
                call = self._call(node)
                wish = _kernel(node) or getattr(node.target, "__name__", "")
                self._text[node] = self.names.new(wish)
                lines.append(f"{indent}{self._text[node]} = {call}")
        return lines

    def named(self, node: Node) -> str:
        """Return a node's name in the text; one without a statement becomes a constant, a function or an argument."""
        if node not in self._text:
            self._text[node] = self._from_elsewhere(node)
        return self._text[node]

    def _call(self, node: Node) -> str:
        kwargs = dict(node.kwargs)
        target = node.target
        if not isinstance(target, torch._ops.OpOverload):
            target = getattr(target, "_op", target)
        arguments = [literal(argument, self.named) for argument in node.args]
        if target is operator.getitem:
            return f"{arguments[0]}[{arguments[1]}]"
        if op_name(node) in _DIM_ORDER_OPS:
            target = _DIM_ORDER_OPS[op_name(node)]
            order: Any = kwargs.pop("dim_order", None)
            if order is not None:
                order = list(order)
            kwargs["memory_format"] = get_memory_format(order)
        target = _VIEWS.get(op_name(node), target)
        for key, value in kwargs.items():
            arguments.append(f"{key}={literal(value, self.named)}")
        return f"{_path(target)}({', '.join(arguments)})"

    def _from_elsewhere(self, node: Node) -> str:
        held = _held(node)
        if isinstance(held, GraphModule):
            return self._function(node, held)
        if self.inside_branch:
            if isinstance(held, Tensor) and held.dim() == 0:
                return literal(held.item())  # Lowering made a tensor of the number.
            raise ValueError(
                f"{node.name}, which a branch reaches for, has no source form there"
            )
        constant = self.constant_of(node)
        if isinstance(held, Tensor):
            constant = Constant("constant", node.name, held)
        if constant is not None:
            name = self.names.new(constant.name)
            self.source.constants[name] = constant
            return f"self.{name}"
        name = self.names.new(_kernel(node) or node.name)
        self.source.arguments[node] = name
        return name

    def _function(self, node: Node, branch: GraphModule) -> str:
        """Define a branch of control flow; everything it needs comes in through its parameters."""
        name = self.names.new(str(node.target))
        shared = Source(functions=self.source.functions)
        inner = _Writer(self.constant_of, self.names, shared, inside_branch=True)
        parameters = branch.graph.find_nodes(op="placeholder")
        inner._text = {n: self.names.new(n.name) for n in parameters}
        nodes = [node for node in branch.graph.nodes if node.op == "call_function"]
        lines = inner.statements(nodes)
        result = literal(branch.graph.output_node().args[0], inner.named)
        self.source.marked |= inner.source.marked
        head = f"def {name}({', '.join(map(inner.named, parameters))}):"
        function = "\n    ".join((head, *lines, f"return {result}"))
        self.source.functions.append(function)
        return name


def _kernel(node: Node) -> str:
    """Return an operator's name without its namespace; empty for other nodes."""
    return op_name(node).split("::")[-1]


def packed(value: Tensor) -> str:
    """Return an expression for a tensor on one or more lines; a long one calls a function ``packed``."""
    if _is_spelled(value):
        return f"torch.tensor({literal(value.tolist())}, dtype={value.dtype})"
    order = value.dim_order()
    dims = range(value.dim())
    text = base64.b64encode(zlib.compress(bytes_of(value), 9)).decode()
    lines = "\n".join(
        [f'    "{text[at : at + 100]}"' for at in range(0, len(text), 100)]
    )
    shape = tuple([value.shape[dim] for dim in order])
    call = f"packed(\n{lines},\n    {value.dtype}, {shape},\n)"
    if order == tuple(dims):
        return call
    return f"{call}.permute({tuple(map(order.index, dims))})"


def _is_spelled(value: Tensor) -> bool:
    """Tell whether a tensor is written out in numbers: it is small, finite and contiguous, of a common type."""
    integers = torch.int8, torch.int32, torch.int64, torch.bool
    if not value.dtype.is_floating_point and value.dtype not in integers:
        return False
    if not 0 < value.numel() <= SPELLED or not value.is_contiguous():
        return False
    return bool(value.isfinite().all())


def bytes_of(value: Tensor) -> bytes:
    """Return the bytes of a tensor, its dims in the order they have in memory."""
    dense = value.detach().permute(value.dim_order()).contiguous().reshape(-1)
    return dense.view(torch.uint8).numpy().tobytes() if dense.numel() else b""


def _held(node: Node) -> object:
    """Return the module or tensor that a ``get_attr`` node holds, None for any other node."""
    if node.op != "get_attr":
        return None
    return stored_value(node)


def _path(target: object) -> str:
    """Return the expression with which Python reaches an operator."""
    if isinstance(target, torch._ops.OpOverload):
        namespace, name = target._schema.name.split("::")
        return _dotted("torch.ops", namespace, name, target._overloadname)
    if isinstance(target, torch._ops.HigherOrderOperator):
        return _dotted("torch.ops.higher_order", target.name())
    name = getattr(target, "__name__", "")
    for module in (operator, math, torch):
        if getattr(module, name, None) is target:
            return _dotted(module.__name__.lstrip("_"), name)
    raise ValueError(f"{name or target} has no source form")


def _dotted(root: str, *names: str) -> str:
    for name in names:
        mangled = keyword.iskeyword(name) or name.startswith("__")
        plain = name.isidentifier() and not mangled
        root = f"{root}.{name}" if plain else f"getattr({root}, {name!r})"
    return root
