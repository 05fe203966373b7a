"""One natural failure of stock ExecuTorch's Arm export, and the export flow that shows it, stock and safe."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn as nn
import torch.nn.functional as F
from executorch.backends.arm.ethosu import EthosUCompileSpec, EthosUPartitioner
from executorch.backends.arm.quantizer import (
    EthosUQuantizer,
    TOSAQuantizer,
    VgfQuantizer,
    get_symmetric_a16w8_quantization_config,
    get_symmetric_quantization_config,
)
from executorch.backends.arm.tosa.compile_spec import TosaCompileSpec
from executorch.backends.arm.tosa.partitioner import TOSAPartitioner
from executorch.backends.arm.vgf import VgfCompileSpec, VgfPartitioner
from executorch.exir import to_edge_transform_and_lower
from lowering import EDGE, by_one_call
from small import Built, image, mark_quantised

from safe_arm import SafeArmPartitioner, SafeEthosUQuantizer, SafeTOSAQuantizer, SafeVgfQuantizer

CONFIGS = {"int8": get_symmetric_quantization_config, "a16w8": get_symmetric_a16w8_quantization_config}
STAGES = ("quantise", "partition", "lower", "serialize", "convert", "emit")


@dataclass(frozen=True)
class Failure:
    """A net that stock quantises and lowers with an exception."""

    name: str
    #: Where stock raises: ``quantise`` (prepare or convert), ``partition`` (the partitioner), ``lower`` (a pass),
    #: ``serialize`` (a node visitor or the serializer), ``convert`` (model-converter or Vela), ``emit`` (to_executorch,
    #: because the partitioner kept an op whole and then refused it).
    stage: str
    #: ``TOSA-...``, ``vgf:TOSA-...`` or an Ethos-U target.
    profile: str
    #: Makes the module, in eval mode, and its example inputs, the same ones on every call.
    build: Callable[[], tuple[nn.Module, tuple[Any, ...]]]
    #: None for float, a name of ``CONFIGS``, or ``handmade`` for a module that has its Q/DQ nodes already.
    quantised: str | None
    #: Operators of the edge graph that may be lost; everything else can be delegated.
    culprits: tuple[str, ...]
    #: A part of what stock says, along the chain of causes; see ``said``.
    raises: str


class Company(Built):
    """conv, ReLU, the culprit, and another conv: behind the culprit if the shape allows it, else beside it."""

    def __init__(self, culprit: Callable[..., Any], members: dict[str, Any]) -> None:
        before, behind = nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)
        super().__init__(culprit, before=before, behind=behind, **members)
        self.eval()

    def forward(self, x: torch.Tensor, *others: torch.Tensor) -> Any:
        hidden = F.relu(self.before(x))
        result = self.function(self, hidden, *others)
        if isinstance(result, torch.Tensor) and result.shape == hidden.shape and result.dtype == hidden.dtype:
            return self.behind(result)
        return self.behind(hidden), result


def in_company(
    culprit: Callable[..., Any],
    members: Callable[[], dict[str, Any]] = dict,
    others: Callable[[], tuple[torch.Tensor, ...]] = tuple,
) -> Callable[[], tuple[nn.Module, tuple[Any, ...]]]:
    """Return the ``build`` of a culprit between two convs: it computes on the net, which has its members, the 1x4x8x8
    output of the first conv, and the other inputs.
    """

    def build() -> tuple[nn.Module, tuple[Any, ...]]:
        torch.manual_seed(0)
        return Company(culprit, members()), (*image(), *others())

    return build


@dataclass(frozen=True)
class Flow:
    """The three classes a user chooses, for one profile."""

    spec: Any
    quantizer: Any
    partitioner: Any


def stock_flow(profile: str) -> Flow:
    if profile.startswith("ethos-u"):
        return Flow(EthosUCompileSpec(profile), EthosUQuantizer, EthosUPartitioner)
    if profile.startswith("vgf:"):
        return Flow(VgfCompileSpec(profile.removeprefix("vgf:")), VgfQuantizer, VgfPartitioner)
    return Flow(TosaCompileSpec(profile), TOSAQuantizer, TOSAPartitioner)


_SAFE = {EthosUQuantizer: SafeEthosUQuantizer, VgfQuantizer: SafeVgfQuantizer, TOSAQuantizer: SafeTOSAQuantizer}


def export(failure: Failure, spec: Any, quantizer_class: Any) -> tuple[torch.export.ExportedProgram, Any]:
    """Return the program that goes to the partitioner, quantised as the failure says, and the quantiser or None."""
    torch._dynamo.reset()
    module, inputs = failure.build()
    program = torch.export.export(module, inputs)
    if failure.quantised is None:
        return program, None
    if failure.quantised == "handmade":
        return torch.export.export(mark_quantised(program.module(check_guards=False)), inputs), None
    quantizer = quantizer_class(spec)
    quantizer.set_global(CONFIGS[failure.quantised]())
    graph_module = by_one_call(quantizer, program.module(check_guards=False), [inputs])
    return torch.export.export(graph_module, inputs), quantizer


def finish(program: torch.export.ExportedProgram, partitioner: Any) -> tuple[Any, bytes]:
    """Lower a program and go on to the end of the export; return the edge manager and the ``.pte``."""
    manager = to_edge_transform_and_lower(program, partitioner=[partitioner], compile_config=EDGE)
    return manager, manager.to_executorch().buffer


def stock(failure: Failure) -> Any:
    """Export with stock classes, from quantising to ``to_executorch()``; raise what they raise."""
    flow = stock_flow(failure.profile)
    program, _ = export(failure, flow.spec, flow.quantizer)
    return finish(program, flow.partitioner(flow.spec))


class Exported(NamedTuple):
    """What an export with safe_arm's classes leaves; the quantiser is None if the failure has no use for one."""

    manager: Any
    partitioner: SafeArmPartitioner
    quantizer: Any
    pte: bytes


def safe(failure: Failure, **options: Any) -> Exported:
    """Export with safe_arm's classes, the partitioner with options."""
    flow = stock_flow(failure.profile)
    program, quantizer = export(failure, flow.spec, _SAFE[flow.quantizer])
    partitioner = SafeArmPartitioner(flow.spec, **options)
    manager, pte = finish(program, partitioner)
    return Exported(manager, partitioner, quantizer, pte)


def said(error: BaseException) -> str:
    """What an exception and those behind it say, one after the other."""
    parts: list[str] = []
    at: BaseException | None = error
    while at is not None:
        parts.append(f"{type(at).__name__}: {at}")
        at = at.__cause__ or (None if at.__suppress_context__ else at.__context__)
    return "\n".join(parts)
