"""Train a keyword spotter that takes one frame at a time, and lower it for an Ethos-U55 and an Ethos-U85."""

import contextlib
import io
from math import ceil

import torch
from executorch.backends.arm.ethosu import EthosUCompileSpec
from executorch.backends.arm.quantizer import get_symmetric_quantization_config
from executorch.backends.arm.tosa.compile_spec import TosaCompileSpec
from executorch.exir import EdgeCompileConfig, to_edge_transform_and_lower
from torch import nn

from safe_arm import SafeArmPartitioner, SafeEthosUQuantizer
from safe_arm.verification.reference_model import run_lowered

BANDS, WIDTH, WORDS = 16, 32, 3


class Spotter(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.gru, self.head = nn.Conv1d(BANDS, WIDTH, 3), nn.GRU(WIDTH, WIDTH), nn.Linear(WIDTH, WORDS)

    def forward(self, frame, line, state):
        line = torch.cat((line, frame), 2)
        heard = torch.relu(self.conv(line)).permute(2, 0, 1)
        _, state = self.gru(heard, state)
        return self.head(state[0]), line[:, :, 1:], state


def streams(count, seed):
    generator = torch.Generator().manual_seed(seed)
    words = torch.randint(WORDS, (count,), generator=generator)
    slope = torch.tensor([0.0, 0.5, -0.5])[words, None]
    band = 4 + 8 * torch.rand(count, 1, generator=generator) + slope * (torch.arange(24) - 12)
    spectra = torch.exp(-((torch.arange(BANDS)[:, None] - band[:, None]) ** 2))
    return words, spectra + 0.2 * torch.rand(spectra.shape, generator=generator)


def run(model, spectra):
    line, state = torch.zeros(len(spectra), BANDS, 2), torch.zeros(1, len(spectra), WIDTH)
    for frame in spectra.split(1, 2):
        inputs = frame, line, state
        logits, line, state = model(*inputs)
        yield inputs, logits


torch.manual_seed(0)
net = Spotter()
optimiser = torch.optim.Adam(net.parameters(), 0.01)
for turn in range(100):
    words, spectra = streams(64, turn)
    *_, (_, logits) = run(net, spectra)
    loss = nn.functional.cross_entropy(logits, words)
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()


def print_result(target, report):
    (vela,), (proof,) = report.vela, report.verifications
    inside = sum(bool(node.delegate) for node in report.compute)
    print(f"{target}: {inside} of {len(report.compute)} operators delegated, {proof.apart_worst:.0f} codes off")
    cycles, sram = vela.cycles, vela.bytes_in("sram") / 1024
    print(f"    {ceil(cycles / 1000)} k cycles a step, {ceil(sram)} KiB of SRAM, by Vela's estimate, rounded up")


def on_device(target, system_config, memory_mode):
    spec = EthosUCompileSpec(target, system_config=system_config, memory_mode=memory_mode)
    quantizer = SafeEthosUQuantizer(spec).set_global(get_symmetric_quantization_config())
    graph = quantizer.quantize_with_submodules(torch.export.export(net, samples[0]).module(), samples)
    program = torch.export.export(graph, samples[0])
    for each in (spec, TosaCompileSpec(spec.tosa_spec)):
        partitioner, config = SafeArmPartitioner(each), EdgeCompileConfig(_check_ir_validity=False)
        with contextlib.redirect_stdout(io.StringIO()):  # Vela's own summary
            edge = to_edge_transform_and_lower(program, partitioner=[partitioner], compile_config=config)
        if each is spec:
            print_result(target, partitioner.report)
    return program, lambda *inputs: run_lowered(edge.exported_program(), inputs)


net.eval().requires_grad_(False)
samples = [inputs for spectra in streams(4, seed=1000)[1].split(1) for inputs, _ in run(net, spectra)]
_, u55 = on_device("ethos-u55-128", "Ethos_U55_High_End_Embedded", "Shared_Sram")
program, u85 = on_device("ethos-u85-256", "Ethos_U85_SYS_DRAM_Mid", "Dedicated_Sram_384KB")


words, spectra = streams(20, seed=2000)


def all_logits(model):
    return torch.stack([torch.cat([logits for _, logits in run(model, stream)]) for stream in spectra.split(1)])


exact = all_logits(net)
print(f"float: {int((exact[:, -1].argmax(1) == words).sum())} of {len(words)} right")
for name, model in {"U55": u55, "U85": u85}.items():
    logits = all_logits(model)
    noise = 10 * torch.log10(exact.square().mean((0, 2)) / (logits - exact).square().mean((0, 2)))
    print(f"{name}: {int((logits[:, -1].argmax(1) == words).sum())} of {len(words)} right")
    print(f"    first step {noise[0]:.1f} dB to the float net, last step {noise[-1]:.1f} dB to the float net")


quantise = [node for node in program.graph.nodes if "quantize_per_tensor" in str(node.target)]
for name, place in {"line": 1, "state": 2}.items():
    (taken,) = (node.args[1:3] for node in quantise if node.args[0].name == name)
    given = program.graph.output_node().args[0][place].args[1:3]
    print(f"{name}: in scale {taken[0]:.4f}, zero point {taken[1]}; out scale {given[0]:.4f}, zero point {given[1]}")
