"""An exported program as the source of a net, in ATen calls: what generated it is not needed to run it."""

import math
import operator
from typing import Any

import torch
from torch import Tensor
from torch.export import ExportedProgram

from tools.fuzz.cases import Input

#: Up to so many elements a constant is written out; a larger one has random values.
_SPELLED = 16


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
