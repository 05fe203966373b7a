"""Train a net and export it in mixed precision: 8 bits, 16 bits where 8 are too few, float where neither is enough."""

import torch
from executorch.backends.arm.quantizer import (
    get_symmetric_a16w8_quantization_config,
    get_symmetric_quantization_config,
)
from executorch.backends.arm.tosa.compile_spec import TosaCompileSpec
from executorch.exir import EdgeCompileConfig, to_edge_transform_and_lower
from torch import nn
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

import safe_arm
from safe_arm import SafeArmPartitioner, SafeTOSAQuantizer


class Loudness(nn.Module):
    """Levels of a signal in decibels: nothing for integers."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.log(x.square() + 1e-4)


class Enhancer(nn.Module):
    """Predicts the clean signal from a noisy one."""

    def __init__(self) -> None:
        super().__init__()
        self.loudness = Loudness()
        self.body = nn.Sequential(nn.Conv1d(2, 24, 9, padding=4), nn.ReLU(), nn.Conv1d(24, 24, 9, padding=4), nn.ReLU())
        self.head = nn.Conv1d(24, 1, 9, padding=4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(torch.cat((x, self.loudness(x)), 1)))


def signals(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return noisy and clean tones, ``(count, 1, 256)``."""
    time, pitch = torch.linspace(0, 1, 256), 4 + 20 * torch.rand(count, 1, 1)
    clean = torch.sin(2 * torch.pi * pitch * time) * torch.exp(-4 * time)
    return clean + 0.1 * torch.randn_like(clean), clean


torch.manual_seed(0)
model = Enhancer()
optimiser = torch.optim.Adam(model.parameters(), 3e-3)
for _ in range(200):
    noisy, clean = signals(16)
    loss = nn.functional.mse_loss(model(noisy), clean)
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()
model.eval()

int8, int16 = get_symmetric_quantization_config(), get_symmetric_a16w8_quantization_config()
calibration, test = signals(32)[0].split(1), signals(4)[0].split(1)
compile_spec = TosaCompileSpec("TOSA-1.0+INT+FP+int16")
for title, layers in {"int8": {}, "mixed": {"head": int16, "loudness": None}}.items():
    quantizer = SafeTOSAQuantizer(compile_spec)
    quantizer.set_global(int8)
    for name, config in layers.items():
        quantizer.set_module_name(name, config)
    prepared = prepare_pt2e(torch.export.export(model, (test[0],)).module(check_guards=False), quantizer)
    for sample in calibration:
        prepared(sample)
    quantized = convert_pt2e(prepared)
    partitioner = SafeArmPartitioner(compile_spec, non_fuseable="propagate")
    program, config = torch.export.export(quantized, (test[0],)), EdgeCompileConfig(_check_ir_validity=False)
    edge = to_edge_transform_and_lower(program, partitioner=[partitioner], compile_config=config)
    float_output, output = torch.cat([model(x) for x in test]), torch.cat([quantized(x) for x in test])
    noise = 10 * torch.log10(float_output.square().mean() / (float_output - output).square().mean())
    worst = safe_arm.verify(edge, [(x,) for x in test], reference=quantized).outputs[0].worst
    print(f"{title:6}{noise:6.1f} dB to the float net, {worst:.0f} codes off, {partitioner.report.macs_delegated:.0%}")
