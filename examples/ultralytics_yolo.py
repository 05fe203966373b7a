"""Lower Ultralytics' YOLO11n for an Ethos-U85 with int8 inputs and outputs, and decode its boxes on the CPU."""

import contextlib
import io
import sys
from pathlib import Path

import numpy as np
import torch
from executorch.backends.arm.ethosu import EthosUCompileSpec
from executorch.backends.arm.quantizer import get_symmetric_quantization_config
from executorch.exir import EdgeCompileConfig, ExecutorchBackendConfig, to_edge_transform_and_lower
from executorch.exir.passes.quantize_io_pass import QuantizeInputs, QuantizeOutputs
from sklearn.datasets import load_sample_image
from torch import nn
from ultralytics.nn.tasks import DetectionModel

from safe_arm import SafeArmPartitioner, SafeEthosUQuantizer
from safe_arm.footprint.memory import with_footprint

SIZE = int(sys.argv[1]) if len(sys.argv) > 1 else 64


class Raw(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, image):
        raw = self.model(image)
        return raw["boxes"], raw["scores"]


def parts(count, seed):
    generator = torch.Generator().manual_seed(seed)
    photo = torch.from_numpy(load_sample_image("china.jpg").copy()).permute(2, 0, 1) / 255
    for _ in range(count):
        top, left = (int(torch.randint(side - SIZE, (), generator=generator)) for side in photo.shape[1:])
        yield photo[None, :, top : top + SIZE, left : left + SIZE].contiguous()


torch.manual_seed(0)
model = DetectionModel("yolo11n.yaml", verbose=False)
for layer in model.model[-1].cv3:
    nn.init.constant_(layer[-1].bias, -1.0)
for module in model.modules():
    if isinstance(module, nn.BatchNorm2d):
        module.momentum = 1.0  # the statistics of the last batch
with torch.no_grad():
    model.train()(torch.cat([*parts(16, seed=0)]))
net = Raw(model).eval()
model.model[-1].training = True  # of the head alone: raw outputs
samples = [(part,) for part in parts(8, seed=1)]
program = torch.export.export(net, samples[0])
torch.export.save(program, "yolo.pt2")
np.savez("samples.npz", np.stack([part.numpy() for (part,) in samples]))


spec = EthosUCompileSpec("ethos-u85-256", system_config="Ethos_U85_SYS_DRAM_Mid", memory_mode="Dedicated_Sram_384KB")
quantizer = SafeEthosUQuantizer(spec).set_global(get_symmetric_quantization_config())
quantised = quantizer.quantize_with_submodules(program.module(), samples)
partitioner = SafeArmPartitioner(spec, non_fuseable="propagate")
with contextlib.redirect_stdout(io.StringIO()):  # Vela's own summary
    edge = to_edge_transform_and_lower(
        torch.export.export(quantised, samples[0]),
        partitioner=[partitioner],
        compile_config=EdgeCompileConfig(_check_ir_validity=False),
    )
    edge = edge.transform([QuantizeInputs(edge, [0]), QuantizeOutputs(edge, [0, 1])])
made = edge.to_executorch(ExecutorchBackendConfig(extract_delegate_segments=False))
Path("yolo.pte").write_bytes(made.buffer)
print(with_footprint(partitioner.report, made))


def overlap(box, others):
    corners = torch.minimum(box[2:], others[:, 2:]) - torch.maximum(box[:2], others[:, :2])
    both = corners.clamp(min=0).prod(-1)
    return both / ((box[2:] - box[:2]).prod() + (others[:, 2:] - others[:, :2]).prod(-1) - both)


def detections(boxes, scores, at_least=0.25):
    centres, strides = [], []
    for stride in (8, 16, 32):
        places = torch.arange(SIZE // stride) + 0.5
        grid = torch.cartesian_prod(places, places).flip(1) * stride
        centres.append(grid)
        strides.append(torch.full((len(grid), 1), float(stride)))
    centres, strides = torch.cat(centres), torch.cat(strides)
    sides = (boxes.view(4, 16, -1).softmax(1) * torch.arange(16.0)[:, None]).sum(1).T * strides
    corners = torch.cat((centres - sides[:, :2], centres + sides[:, 2:]), 1)
    probability, _ = scores[0].sigmoid().max(0)
    kept = []
    for place in probability.argsort(descending=True):
        if probability[place] >= at_least and not (kept and overlap(corners[place], corners[kept]).max() > 0.5):
            kept.append(int(place))
    return corners[kept]


for number, part in enumerate(parts(4, seed=2)):
    with torch.no_grad():
        exact, int8 = detections(*net(part)), detections(*quantised(part))
    same = sum(bool(len(int8)) and float(overlap(box, int8).max()) > 0.9 for box in exact)
    print(f"image {number}: {len(exact)} boxes in float, {len(int8)} in int8, {same} of them the same")
