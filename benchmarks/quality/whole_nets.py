"""Whole nets from the lists of the other benchmarks, transformers' small configurations among them."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from benchmarks import nets
from benchmarks.architectures import by_hand, from_transformers
from benchmarks.nets import Net
from benchmarks.quality.subjects import Entry, LeftOut, Sample, Subject

_IMAGE: dict[str, Any] = {"image_size": 16, "patch_size": 4}
_GPT2 = {"n_embd": 32, "n_inner": 64, "n_layer": 1, "n_head": 4, "vocab_size": 64, "n_positions": 32}
_WHISPER = {
    "d_model": 32, "encoder_layers": 1, "encoder_attention_heads": 4, "encoder_ffn_dim": 64, "num_mel_bins": 16,
    "max_source_positions": 32, "vocab_size": 64, "pad_token_id": 0, "decoder_layers": 1, "decoder_attention_heads": 4,
    "decoder_ffn_dim": 64,
}  # fmt: skip
_IMAGES = (1, 3, 16, 16)


def _deit() -> Net:
    """DeiT with the tokens and positions that transformers draws for ViT: before training it has zeros there.

    A layer norm of a row of zeros is what rounding makes of it, in the best int8 too.
    """
    net, images = from_transformers._encoder("DeiT", "pixel_values", _IMAGES, **_IMAGE)
    for name, parameter in net.named_parameters():
        if "token" in name or "position_embeddings" in name:
            torch.nn.init.trunc_normal_(parameter, std=0.02)
    return net, images


def _whisper() -> Net:
    settings = {**_WHISPER, "attn_implementation": "eager"}
    encoder: Any = from_transformers._model("WhisperModel", "WhisperConfig", "input_features", settings, {})
    encoder.model = encoder.model.encoder
    return encoder.eval(), (torch.randn(1, 16, 64),)


class _Step(torch.nn.Module):
    """Whisper's decoder on the tokens so far, beside what its encoder gives."""

    def __init__(self, decoder: Any) -> None:
        super().__init__()
        self.decoder = decoder

    def forward(self, tokens: Tensor, audio: Tensor) -> Tensor:
        result = self.decoder(inputs_embeds=tokens, encoder_hidden_states=audio, use_cache=False, return_dict=False)
        return result[0]


def _whisper_step() -> Net:
    settings = {**_WHISPER, "attn_implementation": "eager"}
    whole: Any = from_transformers._model("WhisperModel", "WhisperConfig", "input_features", settings, {})
    return _Step(whole.model.decoder).eval(), (torch.randn(1, 8, 32), torch.randn(1, 16, 32))


#: Parts of the names of what makes queries and keys, and the factor that gives scores a standard deviation of some 3.
_SCORED, _PEAKED = ("q_proj", "k_proj", "query", "key", "c_attn"), 16.0


def _peaked(make: Callable[[], Net]) -> Net:
    """Scale seeded weights so that attention is as peaked as that of trained ones."""
    model, inputs = make()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if any(part in name for part in _SCORED):
                parameter.mul_(_PEAKED)
    return model, inputs


_TRANSFORMERS: dict[str, Callable[[], Net]] = {
    "llama": from_transformers.NETS["llama"],
    "gemma": from_transformers.NETS["gemma"],
    "qwen2": from_transformers.NETS["qwen2"],
    "gpt2": partial(from_transformers._encoder, "GPT2", "inputs_embeds", (1, 8, 32), **_GPT2),
    "bert": from_transformers.NETS["bert"],
    "deit": _deit,
    "vit": partial(from_transformers._encoder, "ViT", "pixel_values", _IMAGES, **_IMAGE),
    "whisper-encoder": _whisper,
    "whisper-decoder-step": _whisper_step,
}
_TRANSFORMERS |= {f"{name}-peaked": partial(_peaked, make) for name, make in _TRANSFORMERS.items()}
_OTHERS: dict[str, Callable[[], Net]] = {
    **by_hand.NETS,
    "mobilenet-v2": nets.NETS["mobilenet-v2"],
    "vit-2": partial(nets.vit, 2),
    "residual-8": nets.NETS["residual-8"],
}


def _subject(make: Callable[[], Net], needs: str) -> Subject:
    if needs and importlib.util.find_spec(needs) is None:
        raise LeftOut(f"{needs} is not installed")
    torch.manual_seed(0)
    model, inputs = make()
    return Subject(model, partial(_drawn, inputs))


def _drawn(inputs: tuple[Tensor, ...], generator: torch.Generator) -> Sample:
    drawn = []
    for example in inputs:
        if example.is_floating_point():
            drawn.append(torch.randn(example.shape, generator=generator))
        else:
            drawn.append(torch.randint(0, 64, example.shape, generator=generator))
    return tuple(drawn)


ENTRIES = [Entry(f"d/{name}", partial(_subject, make, "transformers")) for name, make in _TRANSFORMERS.items()]
ENTRIES += [Entry(f"e/{name}", partial(_subject, make, "")) for name, make in _OTHERS.items()]
