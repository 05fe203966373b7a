"""Denoise a held-out photograph with the demo's trained U-Net, as an Ethos-U55 does, under reject and propagate."""

import sys
from pathlib import Path

import torch
from executorch.backends.arm.ethosu import EthosUCompileSpec
from executorch.backends.arm.quantizer import get_symmetric_quantization_config
from executorch.backends.arm.tosa.compile_spec import TosaCompileSpec
from executorch.exir import EdgeCompileConfig, to_edge_transform_and_lower
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

from safe_arm import SafeArmPartitioner, SafeEthosUQuantizer
from safe_arm.verification.reference_model import run_lowered

sys.path.append(str(Path(__file__).parents[1]))  # the checkout, which has the net and the photographs
from demo.photos import calibration, held_out, psnr
from demo.unet import trained

model, (clean, noisy) = trained(), held_out()
u55 = EthosUCompileSpec("ethos-u55-128", system_config="Ethos_U55_High_End_Embedded", memory_mode="Shared_Sram")
tosa = TosaCompileSpec(u55.tosa_spec)  # the graph that Vela compiles, for the reference model to run

quantizer = SafeEthosUQuantizer(u55)
quantizer.set_global(get_symmetric_quantization_config())
prepared = prepare_pt2e(torch.export.export(model, (noisy,)).module(check_guards=False), quantizer)
for sample in calibration():
    prepared(sample)
quantized = convert_pt2e(prepared)


def lowered(compile_spec, policy):
    partitioner = SafeArmPartitioner(compile_spec, non_fuseable=policy)
    edge = to_edge_transform_and_lower(
        torch.export.export(quantized, (noisy,)),
        partitioner=[partitioner],
        compile_config=EdgeCompileConfig(_check_ir_validity=False),
    )
    return edge, partitioner.report


with torch.no_grad():
    images = {"noisy": noisy, "float": noisy - model(noisy), "int8 in PyTorch": noisy - quantized(noisy)}
lines = [f"{'':16}PSNR, dB  codes off  MACs inside      cycles"]
lines += [f"{name:16}{psnr(image, clean):8.2f}" for name, image in images.items()]
for policy in ("reject", "propagate"):
    edge, report = lowered(tosa, policy)
    (noise,) = run_lowered(edge.exported_program(), (noisy,))
    off = max(each.apart_worst for each in report.verifications if each.verified)
    edge, report = lowered(u55, policy)
    with open(f"denoiser_{policy}.pte", "wb") as file:
        edge.to_executorch().write_to_file(file)
    inside, cycles = f"{report.macs_delegated:.0%}", sum(report.cycles.values())
    lines.append(f"{policy:16}{psnr(noisy - noise, clean):8.2f}{off:11.0f}{inside:>13}{cycles:12,}")
print("\n".join(lines))
