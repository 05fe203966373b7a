"""A case: the source of a net, its inputs and how it is quantised and lowered. It is data, and goes over any wire."""

from __future__ import annotations

import hashlib
import json
import random
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

#: By name, what becomes of floats: the profile's extension, or None to leave them floats.
NUMBERS: dict[str, str | None] = {
    "int8": "",
    "int8-tensor": "",
    "int8-127": "",
    "a16w8": "+int16",
    "a8w4": "+int4",
    "uint8-io": "",
    "float": None,
}


def one_line(returned: str, *layers: str) -> str:
    """Return the source of a net that returns an expression of its input, its layers made by statements."""
    lines = "".join(f"        {line}\n" for line in layers)
    made = f"    def __init__(self):\n        super().__init__()\n{lines}\n" if layers else ""
    return f"class Net(nn.Module):\n{made}    def forward(self, x0):\n        return {returned},\n"


@dataclass(frozen=True)
class Input:
    """One input of a net: integers in [0, high), floats in [-high, high), or in [low, high) and nowhere beyond."""

    shape: tuple[int, ...]
    dtype: str = "float32"
    high: float = 1.0
    low: float | None = None

    def around(self, value: Tensor) -> Input:
        """Return this input with the values that another tensor lies between; an empty one is left as it is."""
        finite = value[value.isfinite()]
        return replace(self, low=float(finite.min()), high=float(finite.max())) if finite.numel() else self

    def draw(self, generator: torch.Generator, gain: float = 1.0) -> Tensor:
        """Return a tensor as the net takes it."""
        dtype = getattr(torch, self.dtype)
        if dtype == torch.bool:
            return torch.rand(self.shape, generator=generator) < 0.5
        if not dtype.is_floating_point and not dtype.is_complex:
            return torch.randint(int(self.high), self.shape, generator=generator).to(dtype)
        real = torch.rand(self.shape, generator=generator)
        if self.low is not None:
            return (self.low + real * (self.high - self.low)).to(dtype)
        return ((real * 2 - 1) * self.high * gain).to(dtype)


@dataclass(frozen=True)
class Config:
    """How a net is quantised and lowered, and what is looked at besides."""

    profile: str = "INT"
    #: One of ``NUMBERS``.
    numbers: str = "int8"
    #: For islands that are not fuseable.
    policy: str = "reject"
    verify: bool | None = None
    #: Whether inputs and outputs are quantised by ``set_io``.
    io: bool = False
    #: A layer of the net that stays float.
    island: str = ""
    #: Whether the first size of each input is dynamic.
    dynamic: bool = False
    #: 1, or 2 to lower the net twice in one program, with other weights.
    methods: int = 1
    #: Of ``properties.EXTRA``.
    properties: tuple[str, ...] = ()

    @property
    def spec(self) -> str:
        return f"TOSA-1.0+{self.profile}{NUMBERS[self.numbers] or ''}"


def drawn_config(seed: int) -> Config:
    """Return a usual configuration for a net of a generator that knows nothing of quantisation."""
    draw = random.Random(seed)
    profile = draw.choice(("INT", "INT+FP", "INT+FP", "FP"))
    numbers = "float" if profile == "FP" else draw.choice(("int8", "int8", "int8-127", "a16w8"))
    return Config(profile, numbers, draw.choice(("reject", "propagate")))


@dataclass(frozen=True)
class Case:
    """One net under one configuration."""

    #: Python that defines a class ``Net`` without arguments; ``torch``, ``nn`` and ``F`` are given.
    source: str
    inputs: tuple[Input, ...]
    config: Config = field(default_factory=Config)
    #: Of its weights and of all values of its inputs.
    seed: int = 0

    @property
    def key(self) -> str:
        """A short name, the same for the same case."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()[:12]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def to_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Case:
        return cls.from_dict(json.loads(text))

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Case:
        inputs = tuple(Input(**{**each, "shape": tuple(each["shape"])}) for each in values["inputs"])
        config = {**values["config"], "properties": tuple(values["config"]["properties"])}
        return cls(values["source"], inputs, Config(**config), values["seed"])
