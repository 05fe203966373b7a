"""Write a net step by step, each step tried on meta tensors, so that what is written runs and its shapes are known."""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
import torch.nn as nn
import torch.nn.functional as F
from hypothesis import strategies as st
from torch import Tensor

from tools.fuzz.cases import Input

#: Draws a value of a strategy, as hypothesis gives it to composite strategies.
Draw = Callable[[st.SearchStrategy], object]
#: No tensor is larger than this, and none has more dims.
LARGEST, RANK = 2048, 6
#: What a net's source finds by name.
LIBRARIES = {"torch": torch, "nn": nn, "F": F, "math": math}
SCALARS = (0.5, 1.0, 2.0, 0.25, -0.5, -1.0, 0.1, 3.0, -1.5, 0.0, 6.0)
BOUNDS = ((0.0, 6.0), (-0.5, 0.75), (0.0, 1.0), (-1.0, 1.0), (0.0, 0.5), (-0.25, 0.0), (0.1, 0.4), (-3.0, 3.0))


@dataclass
class Value:
    """A tensor of the net: its name and the meta tensor that stands for it."""

    name: str
    meta: Tensor
    used: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.meta.shape)


@dataclass
class NetSource:
    """A net in the making: its values so far, inputs first, the expressions of its attributes, its statements."""

    draw: Draw
    values: list[Value] = field(default_factory=list)
    layers: dict[str, str] = field(default_factory=dict)
    body: list[str] = field(default_factory=list)
    inputs: list[Input] = field(default_factory=list)
    module: nn.Module = field(default_factory=nn.Module)

    def add_input(self, given: Input) -> None:
        meta = torch.empty(given.shape, dtype=getattr(torch, given.dtype), device="meta")
        self.inputs.append(given)
        self.values.append(Value(f"x{len(self.inputs) - 1}", meta))

    def layer(self, expression: str) -> str:
        """Add an attribute and return how the body calls it."""
        name = f"m{len(self.layers)}"
        with torch.device("meta"):
            made = eval(expression, dict(LIBRARIES))
        if isinstance(made, Tensor) and not isinstance(made, nn.Parameter):
            self.module.register_buffer(name, made)
        else:
            setattr(self.module, name, made)
        self.layers[name] = expression
        return f"self.{name}"

    def floats(self, accept: Callable[[tuple[int, ...]], bool] = lambda shape: True) -> list[Value]:
        """The float values that have a shape of some kind, the newest first."""
        return [v for v in reversed(self.values) if v.meta.is_floating_point() and accept(v.shape)]

    def pick(self, values: list[Value]) -> Value:
        """Draw one, more often a new one."""
        place = min(self.integer(0, len(values) - 1), self.integer(0, len(values) - 1))
        return values[place]

    def integer(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def one_of(self, options):
        return self.draw(st.sampled_from(options))

    def add(self, expression: str) -> bool:
        """Add a statement if its expression can be evaluated and nothing of it is too large; say whether it was."""
        names = {v.name: v.meta for v in self.values}
        try:
            with torch.no_grad():
                result = eval(expression, {**LIBRARIES, "self": self.module, **names})
        except Exception:
            return False
        results = result if isinstance(result, (tuple, list)) else (result,)
        if not 0 < len(results) <= 8 or not all(isinstance(each, Tensor) for each in results):
            return False
        if any(each.numel() > LARGEST or each.dim() > RANK or each.is_complex() for each in results):
            return False
        new = [f"v{len(self.values) + i - len(self.inputs)}" for i in range(len(results))]
        several = "," if isinstance(result, (tuple, list)) and len(new) == 1 else ""
        self.body.append(f"{', '.join(new)}{several} = {expression}")
        for value in self.values:
            value.used = value.used or bool(re.search(rf"\b{value.name}\b", expression))
        self.values += [Value(name, each.to("meta")) for name, each in zip(new, results, strict=True)]
        return True

    def text(self, outputs: list[str]) -> str:
        """The class as Python source."""
        lines, body = ["class Net(nn.Module):"], "\n".join(self.body)
        layers = {name: each for name, each in self.layers.items() if re.search(rf"\bself\.{name}\b", body)}
        if layers:
            lines += ["    def __init__(self):", "        super().__init__()"]
            for name, expression in layers.items():
                buffer = f'self.register_buffer("{name}", {expression})'
                lines.append(f"        {buffer if expression.startswith('torch.') else f'self.{name} = {expression}'}")
            lines.append("")
        lines.append(f"    def forward({', '.join(['self', *(f'x{i}' for i in range(len(self.inputs)))])}):")
        lines += [f"        {line}" for line in self.body]
        lines.append(f"        return {', '.join(outputs)}{',' if len(outputs) == 1 else ''}")
        return "\n".join(lines) + "\n"
