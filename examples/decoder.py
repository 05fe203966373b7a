"""Lower one step of a decoder with a key-value cache for an Ethos-U85, and compare steps with the float net."""

import contextlib
import io

import torch
from executorch.backends.arm.ethosu import EthosUCompileSpec
from executorch.backends.arm.quantizer import get_symmetric_quantization_config
from executorch.backends.arm.tosa.compile_spec import TosaCompileSpec
from executorch.exir import EdgeCompileConfig, to_edge_transform_and_lower
from torch import nn

from safe_arm import SafeArmPartitioner, SafeEthosUQuantizer
from safe_arm.verification.reference_model import run_lowered

WIDTH, HEADS, LENGTH, WORDS = 32, 4, 16, 64
CACHE = (1, HEADS, LENGTH, WIDTH // HEADS)


class Step(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.norm, self.mlp_norm = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.query_key_value, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))
        self.head = nn.Linear(WIDTH, WORDS)

    def with_cache(self, key, value, place, keys, values):
        written = torch.arange(LENGTH)[None] < place
        visible = torch.cat((written, torch.ones(1, 1, dtype=torch.bool)), 1)
        return torch.cat((keys, key), 2), torch.cat((values, value), 2), visible

    def forward(self, token, place, *cache):
        x = self.words(token) + self.places(place)
        parts = self.query_key_value(self.norm(x)).chunk(3, -1)
        query, key, value = (part.view(1, 1, HEADS, -1).transpose(1, 2) for part in parts)
        keys, values, visible = self.with_cache(key, value, place, *cache)
        scores = query @ keys.transpose(2, 3) / (WIDTH // HEADS) ** 0.5
        attention = scores.masked_fill(~visible, float("-inf")).softmax(-1)
        x = x + self.out((attention @ values).transpose(1, 2).reshape(1, 1, WIDTH))
        return self.head(x + self.mlp(self.mlp_norm(x))), key, value


def steps(model, text):
    keys, values = torch.zeros(CACHE), torch.zeros(CACHE)
    for place, token in enumerate(text):
        inputs = token.view(1, 1), torch.tensor([[place]], dtype=torch.int32), keys.clone(), values.clone()
        with torch.no_grad():
            logits, key, value = model(*inputs)
        keys[:, :, place], values[:, :, place] = key[:, :, 0], value[:, :, 0]
        yield inputs, logits


torch.manual_seed(0)
net = Step().eval()
texts = torch.randint(WORDS, (3, LENGTH), dtype=torch.int32)
samples = [inputs for text in texts[:2] for inputs, _ in steps(net, text)]


u85 = EthosUCompileSpec("ethos-u85-256", system_config="Ethos_U85_SYS_DRAM_Mid", memory_mode="Dedicated_Sram_384KB")


def quantised(model, samples):
    quantizer = SafeEthosUQuantizer(u85).set_global(get_symmetric_quantization_config())
    graph = quantizer.quantize_with_submodules(torch.export.export(model, samples[0]).module(), samples)
    return torch.export.export(graph, samples[0])


def lowered(program, spec):
    partitioner, config = SafeArmPartitioner(spec), EdgeCompileConfig(_check_ir_validity=False)
    with contextlib.redirect_stdout(io.StringIO()):  # Vela's own summary
        edge = to_edge_transform_and_lower(program, partitioner=[partitioner], compile_config=config)
    return edge.exported_program(), partitioner.report


program = quantised(net, samples)
_, report = lowered(program, u85)
print(report, f"{sum(report.cycles.values()):,} cycles, by Vela's estimate", sep="\n")


delegate, _ = lowered(program, TosaCompileSpec(u85.tosa_spec))
both = zip(steps(net, texts[2]), steps(lambda *inputs: run_lowered(delegate, inputs), texts[2]), strict=True)
for place, ((_, exact), (_, int8)) in enumerate(both):
    noise = 10 * torch.log10(exact.square().mean() / (exact - int8).square().mean())
    print(f"step {place:2}: {noise:.0f} dB, next word {int(exact.argmax()):2}, in int8 {int(int8.argmax()):2}")


class StepWithBuffers(Step):
    def __init__(self):
        super().__init__()
        self.register_buffer("keys", torch.zeros(CACHE))
        self.register_buffer("values", torch.zeros(CACHE))

    def with_cache(self, key, value, place):
        self.keys.index_copy_(2, place[0], key)
        self.values.index_copy_(2, place[0], value)
        return self.keys, self.values, torch.arange(LENGTH)[None] <= place

    def forward(self, token, place):
        return super().forward(token, place)[0]


torch.manual_seed(0)
consecutive = [(token, place.long()) for token, place, _, _ in samples]
program, report = lowered(quantised(StepWithBuffers().eval(), consecutive), u85)
print(report, f"{sum(report.cycles.values()):,} cycles, by Vela's estimate", sep="\n")
print("states:", *sorted(program.graph_signature.buffers_to_mutate.values()))
