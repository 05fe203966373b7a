"""timm's families, few blocks of each."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import torch.nn as nn

from benchmarks.nets import Net
from benchmarks.proof_nets import seeded


def _timm(name: str, size: int = 32, **options: Any) -> Net:
    def make() -> nn.Module:
        import timm

        return timm.create_model(name, pretrained=False, num_classes=10, **options)

    return seeded(make, 1, 3, size, size)


def _class(module: str, name: str, size: int = 32, **options: Any) -> Net:
    """A class of timm's, where ``create_model`` fixes the depth."""

    def make() -> nn.Module:
        return getattr(import_module(f"timm.models.{module}"), name)(num_classes=10, **options)

    return seeded(make, 1, 3, size, size)


def _byob(blocks: Callable[[Any], tuple[Any, ...]], **options: Any) -> Net:
    """A net of timm's "bring your own blocks"."""

    def make() -> nn.Module:
        module = import_module("timm.models.byobnet")
        return module.ByobNet(module.ByoModelCfg(blocks=blocks(module), stem_chs=16, **options), num_classes=10)

    return seeded(make, 1, 3, 32, 32)


def _regnet() -> Net:
    def make() -> nn.Module:
        module = import_module("timm.models.regnet")
        shape = module.RegNetCfg(depth=6, w0=24, wa=24.0, wm=1.8, group_size=8, se_ratio=0.25)
        return module.RegNet(shape, num_classes=10)

    return seeded(make, 1, 3, 32, 32)


def _mobilevit_blocks(_: Any) -> tuple[Any, ...]:
    mobile = import_module("timm.models.mobilevit")
    return (
        mobile._inverted_residual_block(d=1, c=16, s=2, br=2.0),
        mobile._mobilevit_block(d=1, c=24, s=2, transformer_dim=32, transformer_depth=1, patch_size=2, br=2.0),
    )


def _poolformer() -> Net:
    return _class(
        "metaformer", "MetaFormer", depths=(1, 1), dims=(16, 24),
        token_mixers=import_module("timm.models.metaformer").Pooling,
    )  # fmt: skip


def _inverted(stages: tuple[str, ...], features: int = 64, **layers: Any) -> Net:
    """One of MobileNet's or EfficientNet's, from timm's words for a few of its blocks."""

    def make() -> nn.Module:
        decode = import_module("timm.models._efficientnet_builder").decode_arch_def
        blocks = decode([[stage] for stage in stages], group_size=None)
        net = import_module("timm.models.efficientnet").EfficientNet
        chosen = {name: getattr(nn, layer) for name, layer in layers.items()}
        return net(blocks, num_classes=10, num_features=features, stem_size=16, **chosen)

    return seeded(make, 1, 3, 32, 32)


_GHOSTS = [[[3, 16, 16, 0, 1]], [[3, 48, 24, 0, 2]], [[5, 72, 40, 0.25, 2]], [[5, 96, 40, 0, 1]]]
_VIT = {"img_size": 32, "patch_size": 8, "embed_dim": 32, "depth": 1, "num_heads": 4}

NETS: dict[str, Callable[[], Net]] = {
    "resnet": partial(_timm, "resnet18", layers=(1, 1, 1, 1), channels=(8, 16, 24, 32)),
    "resnet-bottleneck": partial(_timm, "resnet50", layers=(1, 1, 1, 1), channels=(8, 8, 16, 16)),
    "res2net": partial(_timm, "res2net50_26w_4s", layers=(1, 1, 1, 1), channels=(8, 8, 16, 16)),
    "mobilenet-v1": partial(
        _inverted, ("dsa_r1_k3_s1_c16", "dsa_r1_k3_s2_c32", "dsa_r2_k3_s2_c48"), act_layer="ReLU6"
    ),
    "mobilenet-v2": partial(
        _inverted, ("ds_r1_k3_s1_c16", "ir_r2_k3_s2_e6_c24", "ir_r1_k3_s2_e6_c32"), act_layer="ReLU6"
    ),
    "mobilenet-v3": partial(
        _inverted, ("ds_r1_k3_s2_e1_c16_se0.25_nre", "ir_r1_k3_s2_e4.5_c24_nre", "ir_r1_k5_s1_e4_c40_se0.25"),
        act_layer="Hardswish",
    ),
    "mobilenet-v4": partial(
        _inverted, ("cn_r1_k3_s2_e1_c16", "uir_r1_a5_k5_s2_e3_c32", "uir_r1_a0_k3_s1_e2_c32"), act_layer="ReLU"
    ),
    "efficientnet": partial(
        _inverted, ("ds_r1_k3_s1_e1_c16_se0.25", "ir_r1_k3_s2_e6_c24_se0.25", "ir_r1_k5_s2_e6_c40_se0.25"),
        act_layer="SiLU",
    ),
    "mnasnet": partial(
        _inverted, ("ds_r1_k3_s1_c16_noskip", "ir_r1_k3_s2_e6_c24", "ir_r1_k5_s2_e3_c40_se0.25"), act_layer="ReLU"
    ),
    "convnext": partial(_timm, "convnext_atto", depths=(1, 1, 1, 1), dims=(8, 16, 24, 32)),
    "densenet": partial(_timm, "densenet121", growth_rate=8, block_config=(2, 2)),
    "regnet": _regnet,
    "ghostnet": partial(_class, "ghostnet", "GhostNet", cfgs=_GHOSTS),
    "vit": partial(_timm, "vit_tiny_patch16_224", **_VIT),
    "deit": partial(_timm, "deit_tiny_distilled_patch16_224", **_VIT),
    "swin": partial(
        _timm, "swin_tiny_patch4_window7_224", 32, img_size=32, window_size=4, embed_dim=16, depths=(2, 1),
        num_heads=(2, 2),
    ),
    "mobilevit": partial(_byob, _mobilevit_blocks, stem_type="3x3", num_features=64),
    "mlp-mixer": partial(_class, "mlp_mixer", "MlpMixer", img_size=32, patch_size=8, embed_dim=32, num_blocks=2),
    "poolformer": _poolformer,
    "repvgg": partial(
        _byob, lambda m: tuple(m.ByoBlockCfg(type="rep", d=2, c=c, s=2, gs=0) for c in (16, 24)), stem_type="rep"
    ),
    "convmixer": partial(_class, "convmixer", "ConvMixer", dim=16, depth=3, kernel_size=5, patch_size=4),
}  # fmt: skip
