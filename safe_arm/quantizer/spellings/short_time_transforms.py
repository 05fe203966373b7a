"""A Fourier transform of the frames of a signal is a convolution, and its inverse a transposed one.

Spectrograms begin with it, which are what most nets for sound take.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.fx import Node
from torch.nn import functional

from safe_arm.core.island import arguments_by_name
from safe_arm.quantizer.graphs.constant_values import ConstantValues
from safe_arm.quantizer.graphs.graph_edits import Writer, is_float32
from safe_arm.quantizer.spellings.fourier_transforms import (
    LARGEST_MATRIX,
    Pair,
    shape_of,
    transform_weight,
)

_ATEN = torch.ops.aten


def write_short_time_transform(
    write: Writer, node: Node, values: ConstantValues
) -> Pair | None:
    """Write a short-time transform as convolutions of the signal.

    Args:
        node: the call of ``stft``.
        values: the constants of the graph.

    Returns:
        The parts of the result; None if the window is computed, the frames too long or the signal complex.
    """
    given = arguments_by_name(node)
    del given["return_complex"]
    signal, window = given.pop("self"), given.pop("window")
    length = given["n_fft"]
    constant = values.of(window)
    is_known = window is None or constant is not None
    if not is_known or length * length > LARGEST_MATRIX or not is_float32(signal):
        return None
    units = torch.eye(length)
    spectra = torch.stft(
        units, window=constant, center=False, return_complex=True, **given
    )
    matrix = spectra.squeeze(-1)
    signal = write(_ATEN.unsqueeze.default, signal, -2)
    step = given["hop_length"] or length // 4
    parts = []
    for name, part in (("real", matrix.real), ("imaginary", matrix.imag)):
        kernel = transform_weight(part).unsqueeze(1)
        weight = write.constant(kernel, f"{name}_transform")
        parts.append(write(_ATEN.conv1d.default, signal, weight, None, [step]))
    return parts[0], parts[1]


def write_short_time_inverse(
    write: Writer, node: Node, parts: Pair, values: ConstantValues
) -> Node | None:
    """Write the inverse of a short-time transform as a transposed convolution, over what the windows add up to.

    Args:
        node: the call of ``istft``.
        parts: the parts of the spectra.
        values: the constants of the graph.

    Returns:
        The signal; None if the window is computed, a size dynamic, or the signal complex or longer than its frames.
    """
    given = arguments_by_name(node)
    frames = shape_of(parts[0])[-1]
    window = _window(given, values)
    if window is None or not isinstance(frames, int) or given["return_complex"]:
        return None
    step = given["hop_length"] or given["n_fft"] // 4
    squares = (window * window).view(1, 1, -1)
    ones = torch.ones(1, 1, frames)
    sums = functional.conv_transpose1d(ones, squares, stride=step).flatten()
    start = given["n_fft"] // 2 if given["center"] else 0
    end = len(sums) - start
    if given["length"] is not None:
        end = start + given["length"]
    if end > len(sums):
        return None
    kernel = _inverse_kernel(given, shape_of(parts[0])[-2]) * window
    weight = write.constant(kernel.unsqueeze(1), "transform")
    spectra = write(_ATEN.cat.default, list(parts), -2)
    signal = write(_ATEN.conv_transpose1d.default, spectra, weight, None, [step])
    signal = write(_ATEN.squeeze.dim, signal, -2)
    signal = write(_ATEN.slice.Tensor, signal, -1, start, end)
    factors = write.constant(1 / sums[start:end], "windows")
    return write(_ATEN.mul.Tensor, signal, factors)


def _window(given: dict[str, Any], values: ConstantValues) -> Tensor | None:
    """Return the window of an inverse transform, in the middle of zeros; None if it is computed."""
    size = given["win_length"] or given["n_fft"]
    window = torch.ones(size)
    if given["window"] is not None:
        constant = values.of(given["window"])
        if constant is None:
            return None
        window = constant.detach()
    left = (given["n_fft"] - size) // 2
    return functional.pad(window, (left, given["n_fft"] - size - left))


def _inverse_kernel(given: dict[str, Any], count: int) -> Tensor:
    """Return what each number of a spectrum adds to a frame: first the real parts, then the imaginary ones."""
    units = torch.eye(count, dtype=torch.float64)
    inverse = torch.fft.ifft if given["onesided"] is False else torch.fft.irfft
    norm = "ortho" if given["normalized"] else "backward"
    both = torch.cat([units, units * 1j])
    return inverse(both, given["n_fft"], -1, norm).real.float()
