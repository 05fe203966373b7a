"""Every mode in which the Arm backend is used, as data: how a net is quantised, exported, lowered and checked."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn as nn
import torch.nn.functional as F
from executorch.backends.arm.quantizer import (
    TOSAQuantizer,
    VgfQuantizer,
    get_symmetric_a16w8_quantization_config,
    get_symmetric_quantization_config,
    get_uint8_io_quantization_config,
    get_vgf_snorm_quantization_config,
)
from executorch.backends.arm.quantizer.arm_quantizer import get_symmetric_a8w4_quantization_config
from executorch.backends.arm.tosa.partitioner import TOSAPartitioner
from executorch.backends.arm.vgf import VgfCompileSpec
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import to_edge, to_edge_transform_and_lower
from graph_changes import quantised_whole
from lowering import EDGE, tosa
from small import image
from torch import Tensor
from torch.export import Dim, ExportedProgram
from torchao.quantization.pt2e import move_exported_model_to_eval, move_exported_model_to_train
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e, prepare_qat_pt2e

from safe_arm import SafeArmPartitioner, SafeTOSAQuantizer, SafeVgfQuantizer

INT, INT_FP = "TOSA-1.0+INT", "TOSA-1.0+INT+FP"
INT8 = get_symmetric_quantization_config()


class Plain(nn.Module):
    """Two convolutions with the input added, and a head: nothing that is known to be lowered wrong."""

    def __init__(self, width: int = 4) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.conv_b = nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(width, 4, 3, padding=1)
        self.act, self.head = nn.Sigmoid(), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv_b(F.relu(self.conv(x))) + x
        return self.head(self.act(y).mean((2, 3)))


class Joined(Plain):
    """A convolution whose ReLU ends in a ``cat`` with negative values, then a head: a U-Net's skip in small."""

    def __init__(self) -> None:
        super().__init__(8)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.cat((F.relu(self.conv(x)), x), 1)
        return self.head(self.act(self.conv_b(y)).mean((2, 3)))


@dataclass
class Classes:
    """Stock's classes, or ours in their place; ours remember their partitioners."""

    safe: bool
    partitioners: list[SafeArmPartitioner] = field(default_factory=list)

    def quantizer(self, spec: Any) -> Any:
        if isinstance(spec, VgfCompileSpec):
            return (SafeVgfQuantizer if self.safe else VgfQuantizer)(spec)
        return (SafeTOSAQuantizer if self.safe else TOSAQuantizer)(spec)

    def partitioner(self, spec: Any) -> Any:
        if not self.safe:
            return TOSAPartitioner(spec)
        self.partitioners.append(SafeArmPartitioner(spec, non_fuseable="propagate", verify=True))
        return self.partitioners[-1]


@dataclass
class Lowered:
    """One method as it was lowered, what it is to compute, and inputs; ``before`` is run ahead of the program."""

    program: ExportedProgram
    reference: Callable[..., Any]
    samples: list[tuple[Tensor, ...]]


Lowers = Callable[[Classes, nn.Module], list[Lowered]]


def _configured(lower: Callable[..., list[Lowered]]) -> Callable[..., Lowers]:
    """Take what a mode is configured with first; what is returned takes the classes and the net."""
    return lambda *given, **options: lambda classes, net: lower(classes, net, *given, **options)


@dataclass(frozen=True)
class Mode:
    """One row of the table: nets that are lowered in one way."""

    lower: Lowers
    nets: tuple[Callable[[], nn.Module], ...] = (Plain, Joined)


def _samples(rows: tuple[int, ...] = (1, 1, 1)) -> list[tuple[Tensor, ...]]:
    return [image(seed, gain, count) for seed, gain, count in zip((0, 1, 2), (1.0, 1.0, 3.0), rows, strict=True)]


def _edge(classes: Classes, program: ExportedProgram, profile: str, *more: Any) -> ExportedProgram:
    partitioner = [classes.partitioner(tosa(profile)), *more]
    return to_edge_transform_and_lower(program, partitioner=partitioner, compile_config=EDGE).exported_program()


def _to_edge_then_backend(classes: Classes, program: ExportedProgram, profile: str) -> ExportedProgram:
    """Lower in the old way: ``to_edge``, then ``to_backend``."""
    edge = to_edge(program, compile_config=EDGE)
    return edge.to_backend(classes.partitioner(tosa(profile))).exported_program()


def _quantizer(classes: Classes, profile: str, config: Any = INT8) -> Any:
    quantizer = classes.quantizer(tosa(profile))
    quantizer.set_global(config)
    return quantizer


@_configured
def quantised(
    classes: Classes,
    net: nn.Module,
    configure: Callable[[Any], Any],
    profile: str,
    *,
    lower: Callable[..., ExportedProgram] = _edge,
    behind: tuple[type, ...] = (),
    spec: Any = tosa,
    memory_format: torch.memory_format = torch.contiguous_format,
    rows: tuple[int, ...] = (1, 1, 1),
    **export: Any,
) -> list[Lowered]:
    """Post-training quantisation as the quantiser is configured."""
    quantizer = classes.quantizer(spec(profile))
    configure(quantizer)
    net = net.eval().to(memory_format=memory_format)
    samples = [(each[0].to(memory_format=memory_format),) for each in _samples(rows)]
    graph_module = quantised_whole(quantizer, net, samples[:1], **export)
    program = torch.export.export(graph_module, samples[0], **export)
    return [Lowered(lower(classes, program, profile, *(each() for each in behind)), graph_module, samples)]


def as_global(config: Any) -> Callable[[Any], Any]:
    return lambda quantizer: quantizer.set_global(config)


def with_io(config: Any) -> Callable[[Any], Any]:
    return lambda quantizer: (quantizer.set_global(INT8), quantizer.set_io(config))


def without_type(kind: type[nn.Module]) -> Callable[[Any], Any]:
    return lambda quantizer: (quantizer.set_global(INT8), quantizer.set_module_type(kind, None))


def without_name(name: str) -> Callable[[Any], Any]:
    return lambda quantizer: (quantizer.set_global(INT8), quantizer.set_module_name(name, None))


@_configured
def qat(classes: Classes, net: nn.Module, profile: str) -> list[Lowered]:
    """Quantisation-aware training of a few steps."""
    quantizer = _quantizer(classes, profile, get_symmetric_quantization_config(is_qat=True))
    prepared = prepare_qat_pt2e(torch.export.export(net, image()).module(check_guards=False), quantizer)
    move_exported_model_to_train(prepared)
    optimizer = torch.optim.SGD(prepared.parameters(), lr=0.01)
    for step in range(3):
        optimizer.zero_grad()
        prepared(*image(step)).square().mean().backward()
        optimizer.step()
    move_exported_model_to_eval(prepared)
    graph_module = convert_pt2e(prepared)
    program = torch.export.export(graph_module, image())
    return [Lowered(_edge(classes, program, profile), graph_module, _samples())]


@_configured
def floats(classes: Classes, net: nn.Module, profile: str, dtype: torch.dtype = torch.float32) -> list[Lowered]:
    net = net.eval().to(dtype)
    samples = [(sample[0].to(dtype),) for sample in _samples()]
    return [Lowered(_edge(classes, torch.export.export(net, samples[0]), profile), net, samples)]


@_configured
def methods(classes: Classes, net: nn.Module, profile: str) -> list[Lowered]:
    """Two methods of one program, a partitioner each."""
    graph_modules = {}
    for name, of_method in (("encode", net), ("decode", Plain())):
        graph_modules[name] = quantised_whole(_quantizer(classes, profile), of_method.eval(), [image()])
    programs = {name: torch.export.export(each, image()) for name, each in graph_modules.items()}
    partitioners = {name: [classes.partitioner(tosa(profile))] for name in programs}
    manager = to_edge_transform_and_lower(programs, partitioner=partitioners, compile_config=EDGE)
    return [Lowered(manager.exported_program(name), graph_modules[name], _samples()) for name in graph_modules]


class Running(nn.Module):
    """A mutable buffer: the mean of all that it was given so far goes on."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv2d(4, 4, 3, padding=1)
        self.register_buffer("state", torch.zeros(1, 4, 8, 8))

    def forward(self, x: Tensor) -> Tensor:
        self.state.copy_(self.state * 0.5 + F.relu(self.conv(x)) * 0.5)
        return torch.cat((self.state, x), 1)


class Cache(nn.Module):
    """Attention of one head over keys and values that are written into a cache at a position."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.qkv, self.out = nn.Linear(8, 24), nn.Linear(8, 8)
        self.register_buffer("keys", torch.zeros(1, 4, 8))
        self.register_buffer("values", torch.zeros(1, 4, 8))

    def forward(self, x: Tensor, position: Tensor) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, -1)
        self.keys.index_copy_(1, position, k)
        self.values.index_copy_(1, position, v)
        seen = torch.arange(4) <= position
        scores = torch.where(seen, q @ self.keys.transpose(1, 2) * 8**-0.5, -100.0)
        return self.out(torch.softmax(scores, -1) @ self.values)


def _token(step: int) -> tuple[Tensor, Tensor]:
    return torch.rand((1, 1, 8), generator=torch.Generator().manual_seed(step)) * 2 - 1, torch.tensor([step])


#: Buffers that calls write into; a quantised graph begins with zeros again.
STATES = ("state", "keys", "values")


@_configured
def stateful(
    classes: Classes, net: nn.Module, profile: str, samples: list[tuple[Tensor, ...]], *, config: Any = None
) -> list[Lowered]:
    """State that is kept from call to call."""
    if config is None:
        program = torch.export.export(net.eval(), samples[0])
        return [Lowered(_edge(classes, program, profile), net, samples)]
    exported = torch.export.export(net.eval(), samples[0]).module(check_guards=False)
    prepared = prepare_pt2e(exported, _quantizer(classes, profile, config))
    with torch.no_grad():
        for sample in samples:
            prepared(*sample)
    graph_module = convert_pt2e(prepared)
    for name, buffer in graph_module.named_buffers():
        if name in STATES:
            buffer.zero_()
    program = torch.export.export(graph_module, samples[0])
    return [Lowered(_edge(classes, program, profile), graph_module, samples)]


class Choice(nn.Module):
    """One of two convolutions, by the sign of a sum."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.one, self.other = nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cond(torch.sum(x) > 0, self.one, self.other, (x,))


class Loop(nn.Module):
    """Shrinks until the sum is at most 2; never to half of a code exactly, which may be rounded either way."""

    def forward(self, x: Tensor) -> Tensor:
        def goes_on(t: Tensor) -> Tensor:
            return torch.gt(torch.sum(t), torch.full((1,), 2.0)).squeeze()

        return torch.ops.higher_order.while_loop(
            goes_on, lambda t: (torch.mul(t, torch.full((1,), 0.6931)),), (x,), ()
        )[0]


@_configured
def control_flow(classes: Classes, net: nn.Module, profile: str, config: Any = None) -> list[Lowered]:
    """Branches and loops."""
    samples = [(image()[0] + shift,) for shift in (0.3, -0.3)]
    graph_module = net.eval()
    if config is not None:
        graph_module = quantised_whole(_quantizer(classes, profile, config), net, samples)
    return [Lowered(_edge(classes, torch.export.export(graph_module, samples[0]), profile), graph_module, samples)]


_BATCH = {"x": {0: Dim("rows", min=2, max=8)}}
_A16W8 = get_symmetric_a16w8_quantization_config()
_TOKENS = [_token(step) for step in range(4)]
_IMAGES = [image(seed) for seed in range(4)]

MODES: dict[str, Mode] = {
    **{
        f"{name}, {short}": Mode(quantised(as_global(config), f"TOSA-1.0+{short}"))
        for name, config, profiles in (
            ("int8 per channel", INT8, ("INT", "INT+FP")),
            ("int8 per tensor", get_symmetric_quantization_config(is_per_channel=False), ("INT", "INT+FP")),
            ("int8, activations -127..127", get_symmetric_quantization_config(act_qmin=-127), ("INT", "INT+FP")),
            ("int16 activations, int8 weights", _A16W8, ("INT+int16", "INT+FP+int16")),
            (
                "int8 activations, int4 weights", get_symmetric_a8w4_quantization_config(is_qat=False),
                ("INT+int4", "INT+FP+int4"),
            ),
            ("dynamic int8 activations", get_symmetric_quantization_config(is_dynamic=True), ("INT", "INT+FP")),
        )
        for short in profiles
    },
    **{
        f"{name}, {short}": Mode(quantised(configure, f"TOSA-1.0+{short}"))
        for name, configure, profiles in (
            ("uint8 inputs and outputs", with_io(get_uint8_io_quantization_config()), ("INT", "INT+FP")),
            ("int16 inputs and outputs", with_io(_A16W8), ("INT+int16", "INT+FP+int16")),
            ("a type left float", without_type(nn.Sigmoid), ("INT", "INT+FP")),
            ("a name left float", without_name("conv_b"), ("INT", "INT+FP")),
        )
        for short in profiles
    },
    "VGF's snorm": Mode(
        quantised(as_global(get_vgf_snorm_quantization_config()), "TOSA-1.0+FP+INT+int4+int16", spec=VgfCompileSpec)
    ),
    "quantisation-aware training, INT": Mode(qat(INT)),
    "quantisation-aware training, INT+FP": Mode(qat(INT_FP)),
    "float, FP": Mode(floats("TOSA-1.0+FP")),
    "bfloat16, FP+bf16": Mode(floats("TOSA-1.0+FP+bf16", torch.bfloat16)),
    "channels-last, INT": Mode(quantised(as_global(INT8), INT, memory_format=torch.channels_last)),
    "channels-last, INT+FP": Mode(quantised(as_global(INT8), INT_FP, memory_format=torch.channels_last)),
    "strict export, INT": Mode(quantised(as_global(INT8), INT, strict=True)),
    "dynamic batch, INT": Mode(quantised(as_global(INT8), INT, rows=(2, 3, 5), dynamic_shapes=_BATCH)),
    "to_edge, then to_backend, INT": Mode(quantised(as_global(INT8), INT, lower=_to_edge_then_backend)),
    "two methods, a partitioner each, INT": Mode(methods(INT), (Joined,)),
    "XNNPACK behind, a type left float, INT": Mode(
        quantised(without_type(nn.Sigmoid), INT, behind=(XnnpackPartitioner,))
    ),
    "a mutable buffer over four calls, FP": Mode(stateful("TOSA-1.0+FP", _IMAGES), (Running,)),
    "a mutable buffer over four calls, INT": Mode(stateful(INT, _IMAGES, config=INT8), (Running,)),
    "a key-value cache over four calls, FP": Mode(stateful("TOSA-1.0+FP", _TOKENS), (Cache,)),
    "a key-value cache over four calls, INT": Mode(stateful(INT, _TOKENS, config=INT8), (Cache,)),
    "cond, FP+cf": Mode(control_flow("TOSA-1.0+FP+cf"), (Choice,)),
    "cond, INT+cf": Mode(control_flow("TOSA-1.0+INT+cf", INT8), (Choice,)),
    "while_loop, FP+cf": Mode(control_flow("TOSA-1.0+FP+cf"), (Loop,)),
    "while_loop, INT+cf": Mode(control_flow("TOSA-1.0+INT+cf", INT8), (Loop,)),
}  # fmt: skip
