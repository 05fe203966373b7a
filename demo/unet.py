"""The network of the demo: a small, plain U-Net that predicts the noise in a photograph."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn.functional import interpolate, max_pool2d, relu

WEIGHTS = Path(__file__).with_name("unet.safetensors")


def conv3x3(inputs: int, outputs: int) -> nn.Conv2d:
    """Return a 3x3 convolution that keeps the image's size."""
    return nn.Conv2d(inputs, outputs, 3, padding=1)


def block(inputs: int, outputs: int) -> nn.Sequential:
    """Return two convolutions, a ReLU behind each."""
    return nn.Sequential(conv3x3(inputs, outputs), nn.ReLU(), conv3x3(outputs, outputs), nn.ReLU())


class Up(nn.Module):
    """Double the size, join the encoder's features of that size, and merge.

    The up-convolution has no activation, so ``cat`` joins values of both signs to a skip connection that has only
    positive ones, in one quantisation domain. That is all it takes to lose the skip connection's ReLU.
    """

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.up = conv3x3(inputs, outputs)
        self.merge = conv3x3(2 * outputs, outputs)

    def forward(self, x: Tensor, skip: Tensor) -> Tensor:
        """Map ``(N, inputs, H, W)`` and ``(N, outputs, 2H, 2W)`` to ``(N, outputs, 2H, 2W)``."""
        x = self.up(interpolate(x, scale_factor=2.0, mode="nearest"))
        return relu(self.merge(torch.cat((skip, x), 1)))


class UNet(nn.Module):
    """Three levels of 16, 32 and 64 channels; the image minus the output is the denoised image."""

    def __init__(self) -> None:
        super().__init__()
        self.down1, self.down2, self.bottom = block(3, 16), block(16, 32), block(32, 64)
        self.up2, self.up1 = Up(64, 32), Up(32, 16)
        self.noise = conv3x3(16, 3)

    def forward(self, x: Tensor) -> Tensor:
        """Return the noise in an image ``(N, 3, H, W)``; H and W are multiples of four."""
        skip1 = self.down1(x)
        skip2 = self.down2(max_pool2d(skip1, 2))
        x = self.bottom(max_pool2d(skip2, 2))
        return self.noise(self.up1(self.up2(x, skip2), skip1))


def trained() -> UNet:
    """Return the network with the weights that ``python -m demo.train`` made."""
    net = UNet()
    net.load_state_dict(load_file(WEIGHTS))
    return net.eval()
