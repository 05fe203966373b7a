"""From a case to its net, its inputs, the quantised graph and the lowered program, ours or stock's."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn as nn
import torch.nn.functional as F
from executorch.backends.arm.quantizer import arm_quantizer as arm
from executorch.exir import EdgeCompileConfig, EdgeProgramManager, to_edge_transform_and_lower
from executorch.exir.backend.partitioner import Partitioner
from lowering import EDGE, by_one_call, tosa
from small import norm_as_trained
from torch import Tensor
from torch.export import Dim, ExportedProgram
from torch.fx import GraphModule

from tools.fuzz.cases import NUMBERS, Case

Sample = tuple[Tensor, ...]
#: By name, the quantisation of all operators.
CONFIGS: dict[str, Callable[[], Any]] = {
    "int8": arm.get_symmetric_quantization_config,
    "int8-tensor": lambda: arm.get_symmetric_quantization_config(is_per_channel=False),
    "int8-127": lambda: arm.get_symmetric_quantization_config(act_qmin=-127),
    "a16w8": arm.get_symmetric_a16w8_quantization_config,
    "a8w4": lambda: arm.get_symmetric_a8w4_quantization_config(is_qat=False),
    "uint8-io": arm.get_symmetric_quantization_config,
}
METHODS = ("forward", "again")


def nets(case: Case) -> dict[str, nn.Module]:
    """Return the net of each method, with seeded weights and statistics that are not those of a new batch norm."""
    made = {}
    for number, method in enumerate(METHODS[: case.config.methods]):
        torch.manual_seed(case.seed + number)
        names: dict[str, Any] = {"torch": torch, "nn": nn, "F": F, "math": math}
        exec(case.source, names)
        made[method] = names["Net"]().eval()
        for module in made[method].modules():
            norm_as_trained(module)
    return made


def samples(case: Case) -> tuple[list[Sample], list[Sample]]:
    """Return inputs to calibrate with, and others, the last one beyond what was seen."""
    generator = torch.Generator().manual_seed(case.seed)
    drawn = [tuple(each.draw(generator, gain) for each in case.inputs) for gain in (1.0, 1.0, 1.0, 3.0)]
    return drawn[:2], drawn[2:]


def _dynamic(case: Case) -> tuple[dict[int, Any], ...] | None:
    return tuple({0: Dim.AUTO} if each.shape else {} for each in case.inputs) if case.config.dynamic else None


def exported(case: Case, module: nn.Module, sample: Sample) -> ExportedProgram:
    """Export the net of a case."""
    return torch.export.export(module, sample, dynamic_shapes=_dynamic(case))


def quantised(
    case: Case, module: GraphModule, calibration: Sequence[Sample], quantizer_class: type
) -> tuple[GraphModule, GraphModule | None]:
    """Return the converted graph of an exported module, and of ours the float graph that was calibrated.

    The converted graph is the module itself if its numbers stay floats.
    """
    config = case.config
    if NUMBERS[config.numbers] is None:
        return module, None
    quantizer = quantizer_class(tosa(config.spec))
    quantizer.set_global(CONFIGS[config.numbers]())
    if config.numbers == "uint8-io":
        quantizer.set_io(arm.get_uint8_io_quantization_config())
    elif config.io:
        quantizer.set_io(CONFIGS[config.numbers]())
    if config.island:
        quantizer.set_module_name(config.island, None)
    quantizer.keep_reference = True
    return by_one_call(quantizer, module, list(calibration)), getattr(quantizer, "reference", None)


def lowered(
    programs: dict[str, ExportedProgram], partitioner: Partitioner | None, config: EdgeCompileConfig = EDGE
) -> EdgeProgramManager:
    """Lower programs, one for each method; without a partitioner nothing is delegated."""
    each = {name: [partitioner] for name in programs} if partitioner else None
    return to_edge_transform_and_lower(dict(programs), partitioner=each, compile_config=config)
