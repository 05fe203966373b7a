"""What a model has that makes its export poor whatever the backend does, told in the user's own names."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.fx import GraphModule
from torch.fx.node import Argument

from safe_arm.core.attributes import attribute
from safe_arm.core.island import call_functions, op_name

#: How many names a sentence lists.
LISTED = 3
#: Floats of 8 bits have no ``isnan`` in torch.
_LOOKED_INTO = frozenset((torch.float16, torch.bfloat16, torch.float32, torch.float64))
_PRODUCTS = frozenset(
    f"aten::{name}" for name in ("mul", "div", "pow", "matmul", "mm", "bmm")
)
_FLAGS = frozenset(("train", "training"))
_COUNTER = "num_batches_tracked"


def in_training_mode(graph_module: GraphModule) -> str:
    """Return what is wrong with a model that was exported in training mode; empty if it was not."""
    tensors = (
        node
        for op in ("get_attr", "placeholder")
        for node in graph_module.graph.find_nodes(op=op)
    )
    counted = any(
        node.users and str(node.target).endswith(_COUNTER) for node in tensors
    )
    if not counted and not any(map(_trains, call_functions(graph_module))):
        return ""
    return (
        "the model was exported in training mode: its dropout is random and its batch norms follow each batch; call "
        "model.eval() before torch.export.export"
    )


def doubts(program: ExportedProgram, state: Mapping[str, Tensor]) -> Iterator[str]:
    """Yield what is wrong with an exported program.

    Args:
        program: its own state may be fake.
        state: its parameters and buffers by name, with real values.
    """
    if training := in_training_mode(program.graph_module):
        yield training
    names = set(program.graph_signature.user_inputs)
    values = {
        n.name: n.meta.get("val")
        for n in program.graph.find_nodes(op="placeholder")
        if n.name in names
    }
    inputs = {
        name: value for name, value in values.items() if isinstance(value, Tensor)
    }
    parameters = {
        name: state[name]
        for name in program.graph_signature.parameters
        if name in state
    }
    others = {name: tensor for name, tensor in state.items() if name not in parameters}
    yield from doubtful_tensors(parameters, {**others, **inputs})


def _trains(node: torch.fx.Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return False
    given = dict(
        zip((argument.name for argument in schema.arguments), node.args, strict=False)
    ) | dict(node.kwargs)
    return any(given.get(flag) is True for flag in _FLAGS)


def doubtful_tensors(
    parameters: Mapping[str, Tensor], others: Mapping[str, Tensor]
) -> Iterator[str]:
    """Yield what is wrong with a model's tensors: float64, NaN, infinite weights.

    Args:
        parameters: by the user's name.
        others: buffers, constants and inputs by name; a mask among them may well be infinite.
    """
    tensors = {**parameters, **others}
    double = [name for name, tensor in tensors.items() if tensor.dtype == torch.float64]
    if double:
        them = f"{_listed(double)} {'is' if len(double) == 1 else 'are'}"
        yield f"{them} float64, which no Arm accelerator computes in: use model.float() and float32 inputs"
    for name, tensor in tensors.items():
        if not _can_be_looked_into(tensor):
            continue
        finite = name not in parameters
        wrong = tensor.isnan() if finite else ~tensor.isfinite()
        if number := int(wrong.sum()):
            what = "NaN" if tensor.isnan().any() else "infinite"
            yield f"{name!r} is {what} in {number} of its {tensor.numel()} values, and so is what it feeds"


def infinite_factors(graph_module: GraphModule) -> Iterator[str]:
    """Yield what multiplies or divides by infinity in a graph that is to be quantised.

    Stock's passes make 255 of every infinity before annotation, for masks that are added; a product becomes another.

    Args:
        graph_module: a float graph, its tensors attributes.
    """
    for node in call_functions(graph_module):
        if op_name(node) in _PRODUCTS and any(map(_is_infinite, node.args)):
            name = op_name(node).removeprefix("aten::")
            yield f"{node.name!r} ({name}) takes an infinity, of which quantising makes 255: use a finite number"


def _is_infinite(argument: Argument) -> bool:
    if isinstance(argument, torch.fx.Node) and argument.op == "get_attr":
        value = attribute(argument.graph.owning_module, str(argument.target))
        return (
            isinstance(value, Tensor)
            and _can_be_looked_into(value)
            and bool(value.isinf().any())
        )
    return isinstance(argument, float) and math.isinf(argument)


def _can_be_looked_into(tensor: Tensor) -> bool:
    plain = (
        type(tensor) in (Tensor, torch.nn.Parameter)
        and tensor.layout is torch.strided
        and not tensor.is_meta
    )
    return plain and tensor.dtype in _LOOKED_INTO


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return ", ".join(map(repr, names[:LISTED])) + more
