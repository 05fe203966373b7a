"""Nets of NNSmith, a generator whose grammar none of us wrote: valid by constraint solving, random by seed.

A net is written out as ATen calls, so that a case of it runs, shrinks and is kept without NNSmith.
"""

from __future__ import annotations

import math
import operator
import random
import warnings
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy
import torch
import torch.nn as nn
from torch import Tensor
from torch.export import ExportedProgram

from tests.fuzz.cases import Case, Config, Input

#: Operators a net has, elements a tensor may have, milliseconds the solver has.
NODES, ELEMENTS, SOLVER = 6, 1024, 10_000
#: Up to so many elements a constant is written out; a larger one has random values.
_SPELLED = 16


class _Wrapped(nn.Module):
    """An NNSmith net without what it measures on the way."""

    def __init__(self, native: Any) -> None:
        super().__init__()
        self.native = native
        for parameter in self.parameters():
            parameter.requires_grad_(parameter.is_floating_point())

    def forward(self, *inputs):
        values = dict(zip(self.native.ir.input_var(), inputs, strict=True))
        for function, arguments, results, _ in self.native.instructions:
            given = function(*(values[name] for name in arguments))
            values.update(zip(results, given if isinstance(given, (list, tuple)) else [given], strict=True))
        return tuple(values[name] for name in self.native.ir.leaf_var())


@cache
def _torch_model() -> Any:
    """NNSmith's model class for PyTorch, its operators known to the generator."""
    from nnsmith.abstract.extension import activate_ext
    from nnsmith.materialize import Model
    from nnsmith.materialize.torch import symbolnet

    model_class = Model.init("torch")
    model_class.add_seed_setter()
    symbolnet.check_type = lambda *args, **kwargs: None  # it knows no dtype that came with PyTorch 2
    activate_ext(opset=list(model_class.operators()), factory=None)
    return model_class


def _exported(seed: int) -> ExportedProgram:
    """Return the net of a seed as a program."""
    from nnsmith.abstract.dtype import DType
    from nnsmith.graph_gen import model_gen

    model_class = _torch_model()
    for reseed in (torch.manual_seed, random.seed, numpy.random.seed):
        reseed(seed)
    generator = model_gen(
        opset=list(model_class.operators()), method="symbolic-cinit", seed=seed, max_elem_per_tensor=ELEMENTS,
        max_nodes=NODES, timeout_ms=SOLVER, dtype_choices=[DType.float32],
    )  # fmt: skip
    model = model_class.from_gir(generator.make_concrete())
    inputs = tuple(torch.rand(list(each.shape)) for each in model.input_like.values())
    return torch.export.export(_Wrapped(model.torch_model.eval()), inputs)


def written(program: ExportedProgram) -> tuple[str, tuple[Input, ...]]:
    """Return a program as the source of a net, and its inputs."""
    signature = program.graph_signature
    held = {**program.state_dict, **program.constants}
    stored = {
        **signature.inputs_to_parameters,
        **signature.inputs_to_buffers,
        **signature.inputs_to_lifted_tensor_constants,
    }
    names: dict[Any, str] = {}
    layers, inputs, body = [], [], []
    for node in program.graph.nodes:
        if node.op == "placeholder" and node.name in stored:
            names[node] = f"self.m{len(layers)}"
            layers.append(f'        self.register_buffer("m{len(layers)}", {_constant(held[stored[node.name]])})')
        elif node.op == "placeholder":
            names[node] = f"x{len(inputs)}"
            inputs.append(Input(tuple(node.meta["val"].shape)))
        elif node.op == "call_function":
            names[node] = f"v{len(body)}"
            body.append(f"        v{len(body)} = {_call(node, names)}")
    returned = ", ".join(names[each] for each in program.graph.output_node().args[0])
    made = ["    def __init__(self):", "        super().__init__()", *layers] if layers else []
    head = f"    def forward({', '.join(['self', *(f'x{i}' for i in range(len(inputs)))])}):"
    return "\n".join(["class Net(nn.Module):", *made, head, *body, f"        return {returned},\n"]), tuple(inputs)


def _constant(value: Tensor) -> str:
    if value.numel() <= _SPELLED or not value.is_floating_point():
        return f"torch.tensor({_text(value.tolist(), {})}, dtype={value.dtype})"
    return f"torch.rand({list(value.shape)}) * 2 - 1"


def _call(node: torch.fx.Node, names: dict[Any, str]) -> str:
    if node.target is operator.getitem:
        return f"{names[node.args[0]]}[{node.args[1]}]"
    arguments = [_text(each, names) for each in node.args]
    named = [
        f"{name}={_text(each, names)}" for name, each in node.kwargs.items() if name not in ("device", "pin_memory")
    ]
    return f"torch.ops.{node.target}({', '.join([*arguments, *named])})"


def _text(value: Any, names: dict[Any, str]) -> str:
    if isinstance(value, torch.fx.Node):
        return names[value]
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_text(each, names) for each in value)}]"
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    return repr(value)


def numbered(first_seed: int, count: int, start: int = 0) -> Iterator[tuple[int, Case]]:
    """Yield cases with their numbers, as the grammar's ``numbered`` does; a seed the generator fails on is left out."""
    for number in range(start, start + count):
        seed = first_seed * 1_000_000 + number
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                source, inputs = written(_exported(seed))
        except Exception:
            continue
        draw = random.Random(seed)
        profile = draw.choice(("INT", "INT+FP", "INT+FP", "FP"))
        numbers = "float" if profile == "FP" else draw.choice(("int8", "int8", "int8-127", "a16w8"))
        yield number, Case(source, inputs, Config(profile, numbers, draw.choice(("reject", "propagate"))), number)
