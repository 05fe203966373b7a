"""Run what the accelerator does not support on XNNPACK, and the rest on ExecuTorch's portable kernels."""

import torch
from executorch.backends.arm.quantizer import get_symmetric_quantization_config
from executorch.backends.arm.vgf import VgfCompileSpec
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import EdgeCompileConfig, to_edge_transform_and_lower
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

from safe_arm import SafeArmPartitioner, SafeVgfQuantizer


class Detector(torch.nn.Module):
    """A stem whose ReLU meets the image in a cat, a body, and a sort that no accelerator takes."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = torch.nn.Conv2d(3, 8, 3, padding=1)
        self.body = torch.nn.Conv2d(11, 16, 3, stride=2, padding=1)
        self.head = torch.nn.Linear(16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.cat((torch.relu(self.stem(x)), x), 1)
        x = torch.relu(self.body(x)).mean((2, 3))
        return torch.sort(self.head(x), descending=True)[0]


torch.manual_seed(0)
model, example = Detector().eval(), (torch.randn(1, 3, 32, 32),)
compile_spec = VgfCompileSpec("TOSA-1.0+INT+FP")
quantizer = SafeVgfQuantizer(compile_spec)
quantizer.set_global(get_symmetric_quantization_config())
prepared = prepare_pt2e(torch.export.export(model, example).module(check_guards=False), quantizer)
for _ in range(8):
    prepared(torch.randn(1, 3, 32, 32))
quantized = torch.export.export(convert_pt2e(prepared), example)

partitioner = SafeArmPartitioner(compile_spec)
edge = to_edge_transform_and_lower(
    quantized,
    partitioner=[partitioner, XnnpackPartitioner()],
    compile_config=EdgeCompileConfig(_check_ir_validity=False),
)
with open("detector.pte", "wb") as file:
    edge.to_executorch().write_to_file(file)

for verdict in partitioner.report.compute:
    print(f"{'VGF' if verdict.delegate else 'CPU'}  {verdict.as_written}")
