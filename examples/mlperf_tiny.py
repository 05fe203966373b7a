"""Lower MLPerf Tiny's ResNet-8 and keyword spotter for two Ethos-U under two policies, and tabulate Vela's cycles."""

from pathlib import Path

import torch
from executorch.backends.arm.ethosu import EthosUCompileSpec
from executorch.backends.arm.quantizer import get_symmetric_quantization_config
from executorch.examples.models.mlperf_tiny.ds_cnn import DSCNNKWSModel
from executorch.examples.models.mlperf_tiny.resnet8 import ResNet8Model
from executorch.exir import EdgeCompileConfig, to_edge_transform_and_lower
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

from safe_arm import SafeArmPartitioner, SafeEthosUQuantizer

TARGETS = {
    "ethos-u55-128": EthosUCompileSpec(
        "ethos-u55-128", system_config="Ethos_U55_High_End_Embedded", memory_mode="Shared_Sram"
    ),
    "ethos-u85-256": EthosUCompileSpec(
        "ethos-u85-256", system_config="Ethos_U85_SYS_DRAM_Mid", memory_mode="Dedicated_Sram_384KB"
    ),
}


def quantized(net, example, compile_spec):
    quantizer = SafeEthosUQuantizer(compile_spec)
    quantizer.set_global(get_symmetric_quantization_config())
    prepared = prepare_pt2e(torch.export.export(net, example).module(check_guards=False), quantizer)
    for _ in range(8):  # use your own data
        prepared(*(torch.randn_like(each) for each in example))
    return torch.export.export(convert_pt2e(prepared), example)


def lowered(program, compile_spec, policy):
    partitioner = SafeArmPartitioner(compile_spec, non_fuseable=policy)
    config = EdgeCompileConfig(_check_ir_validity=False)
    to_edge_transform_and_lower(program, partitioner=[partitioner], compile_config=config)
    return partitioner.report


def row(name, target, compile_spec, policy, report):
    macs, verified = f"{report.macs_delegated:.0%}", all(each.verified for each in report.verifications)
    cycles = sum(report.cycles.values())
    milliseconds = 1000 * sum(each.number("inference_time") for each in report.vela)
    on_cpu = ", ".join(each.as_written for each in report.fallbacks) or "nothing"
    cells = (name, target, policy, macs, "yes" if verified else "no", f"{cycles:,}", f"{milliseconds:.2f}", on_cpu)
    return f"| {' | '.join(cells)} |"


lines = ["| net | target | policy | MACs | verified | cycles | ms | on the CPU |", "|---|---|---|--:|---|--:|--:|---|"]
for name, made in {"ResNet-8": ResNet8Model(), "DS-CNN": DSCNNKWSModel()}.items():
    torch.manual_seed(0)
    net, example = made.get_eager_model().eval(), made.get_example_inputs()
    for target, compile_spec in TARGETS.items():
        program = quantized(net, example, compile_spec)
        for policy in ("reject", "propagate"):
            lines.append(row(name, target, compile_spec, policy, lowered(program, compile_spec, policy)))

Path("mlperf_tiny.md").write_text("\n".join(lines) + "\n")
