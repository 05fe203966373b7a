"""Train the denoiser on one photograph and write its weights: ``python -m demo.train``."""

from __future__ import annotations

import torch
from safetensors.torch import save_file
from torch import Generator, Tensor, nn
from torch.nn.functional import mse_loss
from torch.nn.utils.fusion import fuse_conv_bn_eval

from demo.photos import held_out, patches, psnr, with_noise
from demo.unet import WEIGHTS, UNet

STEPS, BATCH, PATCH, RATE = 3500, 16, (32, 32), 5e-3


def augmented(batch: Tensor, generator: Generator) -> Tensor:
    """Flip and turn a batch and change its colours, for one photograph has few."""
    dice = torch.randint(2, (3,), generator=generator).tolist()
    batch = batch.flip([axis for axis, flip in zip((2, 3), dice, strict=False) if flip])
    batch = batch.transpose(2, 3) if dice[2] else batch
    gain = 0.4 + 0.6 * torch.rand((len(batch), 3, 1, 1), generator=generator)
    return gain * batch[:, torch.randperm(3, generator=generator)]


def normalised(net: nn.Module) -> nn.Module:
    """Put a batch normalisation behind each convolution but the last, in place: it trains several times faster."""
    nn.init.zeros_(net.noise.weight)
    for parent in list(net.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.Conv2d) and name != "noise":
                setattr(parent, name, nn.Sequential(child, nn.BatchNorm2d(child.out_channels)))
    return net


def folded(net: nn.Module) -> nn.Module:
    """Fold the normalisations into their convolutions, in place, which leaves the plain network."""
    for parent in list(net.eval().modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.Sequential) and isinstance(child[1], nn.BatchNorm2d):
                setattr(parent, name, fuse_conv_bn_eval(*child))
    return net


def main() -> None:
    """Train with a fixed seed, print the loss as PSNR now and then, and save."""
    torch.set_num_threads(1)  # Then the sums do not depend on the number of cores.
    torch.manual_seed(0)
    generator, net = Generator().manual_seed(0), normalised(UNet()).to(memory_format=torch.channels_last)
    optimiser = torch.optim.Adam(net.parameters())
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, RATE, total_steps=STEPS, pct_start=0.1)
    for step in range(1, STEPS + 1):
        clean = augmented(patches(BATCH, PATCH, generator), generator)
        noisy = with_noise(clean, generator)
        loss = mse_loss(net(noisy), noisy - clean)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
        if step % 250 == 0:
            print(f"step {step}: {-10 * loss.log10():.1f} dB", flush=True)
    save_file({name: value.contiguous() for name, value in folded(net).state_dict().items()}, WEIGHTS)
    clean, noisy = held_out()
    with torch.no_grad():
        print(f"held-out photograph: {psnr(noisy - net(noisy), clean):.2f} dB, wrote {WEIGHTS.name}")


if __name__ == "__main__":
    main()
