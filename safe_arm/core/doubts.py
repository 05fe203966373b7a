"""Find properties of a model that make its export poor whatever the backend does, named as in the user's code."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.fx import GraphModule
from torch.fx.node import Argument

from safe_arm.core.attributes import stored_value
from safe_arm.core.island import arguments_by_name, call_functions, op_name
from safe_arm.core.operators import named

#: Maximum number of names that a sentence lists.
LISTED = 3
#: The types whose values are looked at; floats of 8 bits have no ``isnan`` in torch.
_INSPECTED = frozenset((torch.float16, torch.bfloat16, torch.float32, torch.float64))
_PRODUCTS = named("mul div pow matmul mm bmm")
_FLAGS = frozenset(("train", "training"))
#: The name of the buffer in which a batch norm counts the batches that it has seen in training ends so.
COUNTER = "num_batches_tracked"


def in_training_mode(graph_module: GraphModule) -> str:
    """Return a warning about a model that was exported in training mode; empty if it was not."""
    trains = any(map(_trains, call_functions(graph_module)))
    for op in ("get_attr", "placeholder"):
        for node in graph_module.graph.find_nodes(op=op):
            # Training uses the batch counter of a batch norm.
            if node.users and str(node.target).endswith(COUNTER):
                trains = True
    if not trains:
        return ""
    return (
        "the model was exported in training mode: its dropout is random and its batch norms follow each batch; call "
        "model.eval() before torch.export.export"
    )


def doubts(program: ExportedProgram, state: Mapping[str, Tensor]) -> Iterator[str]:
    """Yield warnings about an exported program.

    Args:
        program: its own state may be fake.
        state: its parameters and buffers by name, with real values.
    """
    if training := in_training_mode(program.graph_module):
        yield training
    others = dict(state)
    parameters = {}
    for name in program.graph_signature.parameters:
        if name in others:
            parameters[name] = others.pop(name)
    inputs = set(program.graph_signature.user_inputs)
    for node in program.graph.find_nodes(op="placeholder"):
        value = node.meta.get("val")
        if node.name in inputs and isinstance(value, Tensor):
            others[node.name] = value
    yield from doubtful_tensors(parameters, others)


def _trains(node: torch.fx.Node) -> bool:
    """Tell whether an operator is called with a flag that it trains.

    A batch norm without running statistics has that flag in evaluation, too, and so has what an instance norm becomes.
    """
    if getattr(node.target, "_schema", None) is None:
        return False
    arguments = arguments_by_name(node)
    if "batch_norm" in op_name(node) and arguments.get("running_mean") is None:
        return False
    return any(arguments.get(flag) is True for flag in _FLAGS)


def doubtful_tensors(
    parameters: Mapping[str, Tensor], others: Mapping[str, Tensor]
) -> Iterator[str]:
    """Yield warnings about a model's tensors: float64, NaN, infinite weights.

    Args:
        parameters: by the user's name.
        others: buffers, constants and inputs by name; a mask among them may well be infinite.
    """
    tensors = {**parameters, **others}
    double = [name for name, tensor in tensors.items() if tensor.dtype == torch.float64]
    if double:
        verb = "is" if len(double) == 1 else "are"
        yield (
            f"{_listed(double)} {verb} float64, which no Arm accelerator computes in: use model.float() and float32 "
            "inputs"
        )
    for name, tensor in tensors.items():
        if not _can_be_inspected(tensor):
            continue
        wrong = ~tensor.isfinite() if name in parameters else tensor.isnan()
        if number := int(wrong.sum()):
            kind = "NaN" if tensor.isnan().any() else "infinite"
            yield f"{name!r} is {kind} in {number} of its {tensor.numel()} values, and so is what it feeds"


def infinite_factors(graph_module: GraphModule) -> Iterator[str]:
    """Yield a warning for each operator that multiplies or divides by infinity in a graph that is to be quantised.

    Stock's passes replace every infinity by 255 before annotation. That suits masks that are added, but changes the
    value of a product.

    Args:
        graph_module: a float graph, its tensors attributes.
    """
    for node in call_functions(graph_module):
        if op_name(node) in _PRODUCTS and any(map(_is_infinite, node.args)):
            name = op_name(node).removeprefix("aten::")
            yield f"{node.name!r} ({name}) takes an infinity, of which quantising makes 255: use a finite number"


def merged_inputs(graph_module: GraphModule) -> Iterator[str]:
    """Yield a warning for each input that nothing reads, if a later one has its sizes: both may have been one tensor.

    Args:
        graph_module: a float graph; a call that checks its inputs reads none of them. A branch of control flow, which
            is called flat, need not read all that it is given.
    """
    if not hasattr(graph_module.graph._codegen, "pytree_info"):
        return
    of_others: set[str] = set()
    for node in reversed(graph_module.graph.find_nodes(op="placeholder")):
        value = node.meta.get("val")
        if not isinstance(value, Tensor) or value.dtype not in _INSPECTED:
            continue
        sizes = f"{value.dtype} {value.shape}"
        if any(reader.op != "call_module" for reader in node.users):
            of_others.add(sizes)
        elif sizes in of_others:
            yield (
                f"nothing reads input {node.target!r}. torch.export takes two inputs that are one tensor for one "
                "input; if the net reads it, export with different tensors, such as x and x.clone()"
            )


def _is_infinite(argument: Argument) -> bool:
    if isinstance(argument, torch.fx.Node) and argument.op == "get_attr":
        value = stored_value(argument)
        if not isinstance(value, Tensor) or not _can_be_inspected(value):
            return False
        return bool(value.isinf().any())
    return isinstance(argument, float) and math.isinf(argument)


def _can_be_inspected(tensor: Tensor) -> bool:
    if type(tensor) not in (Tensor, torch.nn.Parameter) or tensor.is_meta:
        return False
    return tensor.layout is torch.strided and tensor.dtype in _INSPECTED


def _listed(names: list[str]) -> str:
    text = ", ".join(map(repr, names[:LISTED]))
    return f"{text} and {len(names) - LISTED} more" if len(names) > LISTED else text
