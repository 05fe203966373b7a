"""Quantise, lower and save a model for Ethos-U: ExecuTorch's own steps, two class names changed."""

import torch
from executorch.backends.arm.ethosu import EthosUCompileSpec
from executorch.backends.arm.quantizer import get_symmetric_quantization_config
from executorch.exir import EdgeCompileConfig, ExecutorchBackendConfig, to_edge_transform_and_lower
from executorch.extension.export_util.utils import save_pte_program
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

from safe_arm import SafeArmPartitioner, SafeEthosUQuantizer  # stock: EthosUPartitioner, EthosUQuantizer


class SkipNet(torch.nn.Module):
    """A convolution whose ReLU shares its quantisation domain with the input, through a cat."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = torch.nn.Conv2d(3, 8, 3, padding=1)
        self.conv2 = torch.nn.Conv2d(11, 3, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv2(torch.cat((torch.relu(self.conv1(x)), x), 1))


torch.manual_seed(0)
model, example = SkipNet().eval(), (torch.randn(1, 3, 32, 32),)

# Export and quantise.
graph_module = torch.export.export(model, example).module(check_guards=False)
compile_spec = EthosUCompileSpec(
    target="ethos-u55-128", system_config="Ethos_U55_High_End_Embedded", memory_mode="Shared_Sram"
)
quantizer = SafeEthosUQuantizer(compile_spec)
quantizer.set_global(get_symmetric_quantization_config(is_per_channel=True))
prepared = prepare_pt2e(graph_module, quantizer)
for _ in range(8):
    prepared(torch.randn(1, 3, 32, 32))
quantized = convert_pt2e(prepared)

# Lower and save.
partitioner = SafeArmPartitioner(compile_spec)
edge = to_edge_transform_and_lower(
    torch.export.export(quantized, example),
    partitioner=[partitioner],
    compile_config=EdgeCompileConfig(_check_ir_validity=False),
)
program = edge.to_executorch(config=ExecutorchBackendConfig(extract_delegate_segments=False))
save_pte_program(program, "skipnet_ethos_u.pte")
print(partitioner.report)  # stock: no report
