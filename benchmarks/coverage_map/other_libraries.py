"""Small nets of torchvision, MONAI, x-transformers, vit-pytorch, torchaudio, pytorchcv and Ultralytics."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import torch.nn as nn
from torch import Tensor

from benchmarks.architectures import from_transformers
from benchmarks.coverage_map.names import names_of
from benchmarks.coverage_map.shortened import small
from benchmarks.nets import Net

_CIFAR_IMAGE = ((1, 3, 32, 32),)
_IMAGE = ((1, 3, 64, 64), (1, 3, 96, 96), (1, 3, 224, 224))


class First(nn.Module):
    """A net of which the first output is the result."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        result = self.net(x)
        while isinstance(result, (tuple, list, dict)):
            result = next(iter(result.values())) if isinstance(result, dict) else result[0]
        return result


def _of(module: str, name: str, shapes: tuple[tuple[int, ...], ...], *values: Any, **options: Any) -> Net:
    """A class or function of a module, made with these arguments."""

    def make() -> nn.Module:
        return First(getattr(importlib.import_module(module), name)(*values, **options))

    return small(make, *shapes)


def _pytorchcv(name: str) -> Net:
    shapes = _CIFAR_IMAGE if name.endswith("_cifar10") else _IMAGE
    return _of("pytorchcv.model_provider", "get_model", shapes, name, pretrained=False)


def _transformer(make: Callable[[Any], nn.Module], *shape: int) -> Net:
    return small(lambda: First(make(importlib.import_module("x_transformers"))), shape)


def _audio(module: str, name: str, shape: tuple[int, ...], **options: Any) -> Net:
    """A model of torchaudio's, without its package: its C++ library fits another torch."""

    def make() -> nn.Module:
        spec = importlib.util.find_spec("torchaudio")
        assert spec is not None
        assert spec.origin is not None
        for package in ("torchaudio", "torchaudio.models"):
            if package not in sys.modules:
                stub = ModuleType(package)
                folder = Path(spec.origin).parent.joinpath(*package.split(".")[1:])
                stub.__path__ = [str(folder)]
                sys.modules[package] = stub
        return First(getattr(importlib.import_module(f"torchaudio.models.{module}"), name)(**options))

    return small(make, shape)


def _yolo(name: str) -> Net:
    """A detector of Ultralytics' as it exports one: boxes and classes in one output."""

    def make() -> nn.Module:
        tasks = importlib.import_module("ultralytics.nn.tasks")
        kind = "ClassificationModel" if "-cls" in name else "SegmentationModel" if "-seg" in name else "DetectionModel"
        net = getattr(tasks, kind)(f"{name}.yaml", verbose=False).eval()
        for module in net.modules():
            if hasattr(module, "export"):
                module.export = True
                module.format = "tflite"
        return First(net)

    return small(make, (1, 3, 64, 64))


_VIT = {"image_size": 32, "num_classes": 10, "dim": 32, "depth": 1, "heads": 2, "mlp_dim": 64}
_PATCHED = {**_VIT, "patch_size": 8}
_VIT_IMAGE = ((1, 3, 32, 32),)


def _vit(module: str, name: str, **options: Any) -> Callable[[], Net]:
    """A net for images of 32 pixels."""
    return partial(_of, f"vit_pytorch.{module}", name, ((1, 3, 32, 32),), **options)


def _larger(module: str, name: str, **options: Any) -> Callable[[], Net]:
    """A net for images of any size, which needs 64 pixels."""
    return partial(_of, f"vit_pytorch.{module}", name, ((1, 3, 64, 64),), **options)


VIT_PYTORCH: dict[str, Callable[[], Net]] = {
    "vit": _vit("vit", "ViT", **_PATCHED),
    "simple_vit": _vit("simple_vit", "SimpleViT", **_PATCHED),
    "simple_vit_with_qk_norm": _vit("simple_vit_with_qk_norm", "SimpleViT", **_PATCHED),
    "simple_vit_with_register_tokens": _vit("simple_vit_with_register_tokens", "SimpleViT", **_PATCHED),
    "simple_vit_with_fft": _vit("simple_vit_with_fft", "SimpleViT", **_PATCHED, freq_patch_size=8),
    "deepvit": _vit("deepvit", "DeepViT", **_PATCHED),
    "cait": _vit("cait", "CaiT", **_PATCHED, cls_depth=1),
    "parallel_vit": _vit("parallel_vit", "ViT", **_PATCHED),
    "vit_for_small_dataset": _vit("vit_for_small_dataset", "ViT", **_PATCHED),
    "vit_with_patch_merger": _vit("vit_with_patch_merger", "ViT", **{**_PATCHED, "depth": 3}),
    "normalized_vit": _vit("normalized_vit", "nViT", **_PATCHED),
    "cct": _vit("cct", "CCT", img_size=32, embedding_dim=32, n_conv_layers=1, num_layers=1, num_heads=2, mlp_ratio=2.0,
                num_classes=10),
    "cross_vit": _vit("cross_vit", "CrossViT", image_size=32, num_classes=10, sm_dim=16, lg_dim=32, sm_patch_size=8,
                      lg_patch_size=16, depth=1, sm_enc_depth=1, lg_enc_depth=1),
    "crossformer": _larger("crossformer", "CrossFormer", num_classes=10, dim=(32, 32, 64, 64), depth=(1, 1, 1, 1),
                        global_window_size=(4, 2, 2, 1), local_window_size=2),
    "cvt": _larger("cvt", "CvT", num_classes=10, s1_emb_dim=16, s2_emb_dim=32, s3_emb_dim=48, s3_depth=1),
    "levit": _vit("levit", "LeViT", image_size=32, num_classes=10, stages=2, dim=(32, 48), depth=1, heads=2, mlp_mult=2,
                  dim_key=16, dim_value=16),
    "max_vit": _larger("max_vit", "MaxViT", num_classes=10, dim=16, depth=(1, 1), dim_head=8, window_size=4),
    "nest": _vit("nest", "NesT", image_size=32, patch_size=4, dim=16, heads=2, num_hierarchies=2, block_repeats=(1, 1),
                 num_classes=10),
    "pit": _vit("pit", "PiT", image_size=32, patch_size=8, dim=32, num_classes=10, depth=(1, 1), heads=2, mlp_dim=64),
    "regionvit": _larger("regionvit", "RegionViT", dim=(16, 16, 32, 32), depth=(1, 1, 1, 1), window_size=2,
                         num_classes=10),
    "rvt": _vit("rvt", "RvT", **_PATCHED),
    "scalable_vit": _larger("scalable_vit", "ScalableViT", num_classes=10, dim=16, heads=(2,), depth=(1,),
                            ssa_dim_key=(8,), ssa_dim_value=(8,), reduction_factor=(2,), window_size=(8,)),
    "sep_vit": _larger("sep_vit", "SepViT", num_classes=10, dim=16, dim_head=8, heads=(1, 2), depth=(1, 1),
                       window_size=(4, 4)),
    "t2t": _vit("t2t", "T2TViT", dim=32, image_size=32, depth=1, heads=2, mlp_dim=64, num_classes=10,
                t2t_layers=((7, 4), (3, 2))),
    "xcit": _vit("xcit", "XCiT", **_PATCHED, cls_depth=1),
}  # fmt: skip


def _encoder(kind: str, **options: Any) -> Callable[[], Net]:
    def make(x: Any) -> nn.Module:
        return getattr(x, kind)(dim=32, depth=1, heads=2, attn_dim_head=16, **options)

    return partial(_transformer, make, 1, 8, 32)


X_TRANSFORMERS: dict[str, Callable[[], Net]] = {
    "encoder": _encoder("Encoder"),
    "decoder": _encoder("Decoder"),
    "decoder-rmsnorm": _encoder("Decoder", use_rmsnorm=True),
    "encoder-simple-rmsnorm": _encoder("Encoder", use_simple_rmsnorm=True),
    "decoder-swiglu": _encoder("Decoder", ff_glu=True, ff_swish=True, ff_no_bias=True),
    "encoder-relu-squared": _encoder("Encoder", ff_relu_squared=True),
    "decoder-rotary": _encoder("Decoder", rotary_pos_emb=True),
    "decoder-alibi": _encoder("Decoder", alibi_pos_bias=True, alibi_num_heads=2),
    "encoder-qk-norm": _encoder("Encoder", attn_qk_norm=True),
    "encoder-talking-heads": _encoder("Encoder", attn_pre_talking_heads=True),
    "encoder-relative": _encoder("Encoder", rel_pos_bias=True),
    "encoder-sandwich": _encoder("Encoder", sandwich_norm=True),
    "encoder-macaron": _encoder("Encoder", macaron=True),
    "decoder-one-kv-head": _encoder("Decoder", attn_one_kv_head=True),
}

_U = {"spatial_dims": 2, "in_channels": 1, "out_channels": 2}
_ONE = ((1, 1, 32, 32),)
_N = "monai.networks.nets"
MONAI: dict[str, Callable[[], Net]] = {
    "basic-unet": partial(_of, _N, "BasicUNet", _ONE, **_U, features=(8, 8, 16, 16, 32, 8)),
    "basic-unet-plus-plus": partial(_of, _N, "BasicUNetPlusPlus", _ONE, **_U, features=(8, 8, 16, 16, 32, 8)),
    "unet": partial(_of, _N, "UNet", _ONE, **_U, channels=(8, 16, 32), strides=(2, 2), num_res_units=1),
    "attention-unet": partial(_of, _N, "AttentionUnet", _ONE, **_U, channels=(8, 16, 32), strides=(2, 2)),
    "dyn-unet": partial(_of, _N, "DynUNet", _ONE, **_U, kernel_size=[3, 3, 3], strides=[1, 2, 2],
                        upsample_kernel_size=[2, 2], filters=[8, 16, 32]),
    "seg-res-net": partial(_of, _N, "SegResNet", _ONE, **_U, init_filters=8, blocks_down=(1, 1), blocks_up=(1,)),
    "vnet": partial(_of, _N, "VNet", _ONE, **_U),
    "unetr": partial(_of, _N, "UNETR", _ONE, 1, 2, (32, 32), feature_size=8, hidden_size=32, mlp_dim=64, num_heads=2,
                     spatial_dims=2),
    "swin-unetr": partial(_of, _N, "SwinUNETR", ((1, 1, 64, 64),), 1, 2, spatial_dims=2, feature_size=12,
                          depths=(1, 1, 1, 1), num_heads=(2, 2, 2, 2)),
    "auto-encoder": partial(_of, _N, "AutoEncoder", _ONE, **_U, channels=(8, 16), strides=(2, 2)),
    "high-res-net": partial(_of, _N, "HighResNet", _ONE, **_U),
    "vit": partial(_of, _N, "ViT", _ONE, 1, (32, 32), (8, 8), hidden_size=32, mlp_dim=64, num_layers=1, num_heads=2,
                   spatial_dims=2),
    "efficientnet": partial(_of, _N, "EfficientNetBN", ((1, 3, 64, 64),), "efficientnet-b0", pretrained=False,
                            num_classes=4),
    "densenet": partial(_of, _N, "DenseNet", _ONE, **_U, init_features=8, growth_rate=8, block_config=(2, 2)),
    "patch-discriminator": partial(_of, _N, "PatchDiscriminator", _ONE, 2, 8, 1, num_layers_d=2),
    "autoencoder-kl": partial(_of, _N, "AutoencoderKL", _ONE, **{**_U, "out_channels": 1}, channels=(8, 16),
                                         num_res_blocks=(1, 1), attention_levels=(False, True), norm_num_groups=4,
                                         latent_channels=4),
    "med-next": partial(_of, _N, "MedNeXt", _ONE, **_U, init_filters=8, blocks_down=(1, 1, 1, 1),
                        blocks_up=(1, 1, 1, 1),
                        blocks_bottleneck=1),
}  # fmt: skip

_NARROW: dict[str, dict[str, Any]] = {"vit_b_32": {"image_size": 64}}


TORCHAUDIO: dict[str, Callable[[], Net]] = {
    "deepspeech": partial(_audio, "deepspeech", "DeepSpeech", (1, 1, 16, 16), n_feature=16, n_hidden=32, n_class=8),
    "conv-tasnet": partial(_audio, "conv_tasnet", "ConvTasNet", (1, 1, 512), enc_num_feats=16, msk_num_feats=16,
                           msk_num_hidden_feats=16, msk_num_layers=2, msk_num_stacks=1),
    "wav2vec2": partial(
        _audio, "wav2vec2.model", "wav2vec2_model", (1, 800), extractor_mode="layer_norm",
        extractor_conv_layer_config=[(16, 10, 5), (16, 3, 2)], extractor_conv_bias=True, encoder_embed_dim=32,
        encoder_projection_dropout=0.0, encoder_pos_conv_kernel=8, encoder_pos_conv_groups=4, encoder_num_layers=1,
        encoder_num_heads=2, encoder_attention_dropout=0.0, encoder_ff_interm_features=64,
        encoder_ff_interm_dropout=0.0, encoder_dropout=0.0, encoder_layer_norm_first=False, encoder_layer_drop=0.0,
        aux_num_out=8),
}  # fmt: skip

NETS: dict[str, Callable[[], Net]] = {
    **{f"monai/{name}": net for name, net in MONAI.items()},
    **{f"vit-pytorch/{name}": net for name, net in VIT_PYTORCH.items()},
    **{f"x-transformers/{name}": net for name, net in X_TRANSFORMERS.items()},
    **{f"transformers/{name}": net for name, net in from_transformers.NETS.items()},
    **{f"torchaudio/{name}": net for name, net in TORCHAUDIO.items()},
    **{
        f"torchvision/{name}": partial(_of, "torchvision.models", name, _IMAGE, weights=None, **_NARROW.get(name, {}))
        for name in names_of("torchvision")
    },
    **{f"ultralytics/{name}": partial(_yolo, name) for name in names_of("ultralytics")},
    **{f"pytorchcv/{name}": partial(_pytorchcv, name) for name in names_of("pytorchcv")},
}
