"""transformers' families from small configurations; none needs a download."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn as nn
from torch import Tensor

from benchmarks.nets import Net
from benchmarks.proof_nets import seeded

_SMALL = {
    "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4, "vocab_size": 64,
    "max_position_embeddings": 32, "attn_implementation": "eager",
}  # fmt: skip


class Called(nn.Module):
    """A model of transformers that is handed one tensor by name and returns its first output."""

    def __init__(self, model: nn.Module, argument: str, options: dict[str, Any]) -> None:
        super().__init__()
        self.model, self.argument, self.options = model, argument, options

    def forward(self, x: Tensor) -> Tensor:
        return self.model(**{self.argument: x}, **self.options, return_dict=False)[0]


def _model(name: str, config: str, argument: str, settings: dict[str, Any], call: dict[str, Any]) -> nn.Module:
    import transformers

    model = getattr(transformers, name)(getattr(transformers, config)(**settings))
    return Called(model, argument, call)


def _decoder(name: str, **settings: Any) -> Net:
    """One layer of a language model between embeddings and its last norm."""
    options = {**_SMALL, "num_key_value_heads": 2, "use_cache": False, **settings}
    return seeded(
        partial(_model, f"{name}Model", f"{name}Config", "inputs_embeds", options, {"use_cache": False}), 1, 8, 32
    )


def _encoder(name: str, argument: str, shape: tuple[int, ...], **settings: Any) -> Net:
    return seeded(partial(_model, f"{name}Model", f"{name}Config", argument, {**_SMALL, **settings}, {}), *shape)


def _tokens(net: Callable[[], Net]) -> Net:
    """The same on eight tokens."""
    return net()[0], (torch.randint(0, 64, (1, 8), generator=torch.Generator().manual_seed(0)),)


_T5 = {
    "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 1, "num_heads": 4, "vocab_size": 64,
    "attn_implementation": "eager",
}  # fmt: skip
_SPEECH = {
    "conv_dim": (16, 16), "conv_stride": (5, 2), "conv_kernel": (10, 3), "num_feat_extract_layers": 2,
    "num_conv_pos_embeddings": 8, "num_conv_pos_embedding_groups": 4, "apply_spec_augment": False,
    "feat_extract_norm": "layer",
}  # fmt: skip

NETS: dict[str, Callable[[], Net]] = {
    "llama": partial(_decoder, "Llama"),
    "gemma": partial(_decoder, "Gemma", head_dim=8),
    "qwen2": partial(_decoder, "Qwen2"),
    "clip-text": partial(_tokens, partial(_encoder, "CLIPText", "input_ids", (1, 8), eos_token_id=2)),
    "t5-encoder": partial(
        _tokens, lambda: seeded(partial(_model, "T5EncoderModel", "T5Config", "input_ids", _T5, {}), 1, 8)
    ),
    "bert": partial(_tokens, partial(_encoder, "Bert", "input_ids", (1, 8))),
    "wav2vec2": partial(_encoder, "Wav2Vec2", "input_values", (1, 400), **_SPEECH),
    "conformer": partial(
        _encoder, "Wav2Vec2Conformer", "input_values", (1, 400), **_SPEECH, position_embeddings_type=None
    ),
    "segformer": partial(
        _encoder, "Segformer", "pixel_values", (1, 3, 32, 32), num_encoder_blocks=2, depths=[1, 1], sr_ratios=[2, 1],
        hidden_sizes=[16, 32], num_attention_heads=[1, 2], patch_sizes=[7, 3], strides=[4, 2], mlp_ratios=[2, 2],
    ),
}  # fmt: skip
