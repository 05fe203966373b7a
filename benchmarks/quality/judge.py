"""The figures of one row: how near to the float net are ideal quantisation, ours and stock's."""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from executorch.backends.arm.quantizer import TOSAQuantizer, get_symmetric_quantization_config
from executorch.backends.arm.tosa.compile_spec import TosaCompileSpec
from torch import Tensor
from torch.fx import GraphModule
from torch.utils._pytree import tree_leaves
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

from benchmarks.quality.ideal import ideal
from benchmarks.quality.subjects import Entry, LeftOut, Sample, Subject, samples
from safe_arm import SafeTOSAQuantizer
from safe_arm.acceleration import histogram_search
from safe_arm.core.island import QUANTIZE, call_functions, is_dequantize, is_marked_quantized, op_name
from safe_arm.quantizer.graphs.graph_edits import tensor_of
from safe_arm.quantizer.proof.fidelity import decibel

PROFILE = "TOSA-1.0+INT"
QUANTIZERS = {"ours": SafeTOSAQuantizer, "stock": TOSAQuantizer}
BY = ("ideal", *QUANTIZERS)


@dataclass(frozen=True)
class Figure:
    """One row as quantised by one of them.

    Attributes:
        row, by: which.
        key: of the code that was measured.
        sqnr: signal to quantisation noise of the worst output in dB, over all samples; None if there is none.
        text: why there is none; ``"left out: …"`` where there is nothing to measure.
        floats: operators on floats that are not quantised.
        seconds: what it took.
    """

    row: str
    by: str
    key: str
    sqnr: float | None
    text: str = ""
    floats: int = 0
    seconds: float = 0.0


def figures(entry: Entry, keys: dict[str, str]) -> list[Figure]:
    """Measure a row; an exception becomes a text.

    Args:
        entry: the row.
        keys: whose figures, each with the key of the code that is measured.
    """
    warnings.simplefilter("ignore")
    logging.disable(logging.ERROR)
    try:
        judge = Judge(entry.make())
    except LeftOut as error:
        return _without_figures(entry, keys, f"left out: {error}")
    except Exception as error:
        return _without_figures(entry, keys, f"float net: {_line(error)}")
    found = []
    for by, key in keys.items():
        began = time.perf_counter()
        try:
            sqnr, text, floats = judge.figure(by)
        except Exception as error:
            sqnr, text, floats = None, _line(error), 0
        seconds = round(time.perf_counter() - began, 2)
        found.append(Figure(entry.name, by, key, sqnr, text, floats, seconds))
    return found


def _without_figures(entry: Entry, keys: dict[str, str], text: str) -> list[Figure]:
    return [Figure(entry.name, by, key, None, text) for by, key in keys.items()]


class Judge:
    """A float net with what it gives on samples that no calibration has seen.

    Args:
        subject: the net.
    """

    @torch.no_grad()
    def __init__(self, subject: Subject) -> None:
        self.model = subject.model
        self.calibration = samples(subject, 1)
        self.held_out = samples(subject, 2)
        self.expected = [_outputs(self.model, sample) for sample in self.held_out]
        if not any(self.expected):
            raise LeftOut("no output is a tensor")
        self.silenced = None
        if subject.silenced is not None:
            self.silenced = [_outputs(subject.silenced, sample) for sample in self.held_out]
        self.exported = torch.export.export(self.model, self.calibration[0])

    @torch.no_grad()
    def figure(self, by: str) -> tuple[float | None, str, int]:
        """Return the ratio in dB, why there is none, and the number of operators left float."""
        module = self.exported.module(check_guards=False)
        if by == "ideal":
            return self.ratio(ideal(module, self.calibration)), "", 0
        quantised, left = _quantised(QUANTIZERS[by], module, self.calibration)
        if not any(op_name(node) == QUANTIZE for node in call_functions(quantised)):
            return None, "left out: nothing is quantised", left
        return self.ratio(quantised), "", left

    def ratio(self, net: Callable[..., Any]) -> float:
        """Return the lowest ratio of an output, over all samples."""
        actual = [_outputs(net, sample) for sample in self.held_out]
        ratios = []
        for index in range(len(self.expected[0])):
            silenced = None
            if self.silenced is not None:
                silenced = [each[index] for each in self.silenced]
            given = [each[index] for each in actual]
            wanted = [each[index] for each in self.expected]
            ratios.append(_ratio(given, wanted, silenced))
        return round(min(ratios), 2)


def _ratio(actual: list[Tensor], expected: list[Tensor], silenced: list[Tensor] | None) -> float:
    """Return signal to noise of one output over all samples.

    The signal is the float output less the silenced one. Integers and booleans are right or wrong: the noise is the
    share of wrong ones.
    """
    signal = noise = 0.0
    for index, wanted in enumerate(expected):
        given = actual[index]
        if given.shape != wanted.shape:
            raise ValueError(f"an output of shape {tuple(given.shape)}, not {tuple(wanted.shape)}")
        if not wanted.is_floating_point():
            signal += wanted.numel()
            noise += int((given != wanted).sum())
            continue
        finite = wanted.isfinite()
        wanted, given = wanted[finite].double(), given[finite].double()
        origin = torch.zeros_like(wanted)
        if silenced is not None:
            origin = silenced[index][finite].double()
        signal += float((wanted - origin).square().sum())
        noise += float((given - wanted).square().sum())
    return decibel(signal, noise)


def _quantised(quantizer_class: Any, module: GraphModule, calibration: Sequence[Sample]) -> tuple[GraphModule, int]:
    quantizer = quantizer_class(TosaCompileSpec(PROFILE))
    quantizer.set_global(get_symmetric_quantization_config())
    prepared = prepare_pt2e(module, quantizer)
    for sample in calibration:
        prepared(*_copies(sample))
    with ExitStack() as quick:
        unguarded = prepared.modules() if quantizer_class is TOSAQuantizer else ()
        for observer in unguarded:
            quick.enter_context(histogram_search.on_floats(observer))
        converted = convert_pt2e(prepared)
    left = sum(map(_is_left_float, call_functions(converted)))
    return converted, left


def _is_left_float(node: Any) -> bool:
    if is_dequantize(node) or op_name(node) == QUANTIZE or is_marked_quantized(node):
        return False
    value = tensor_of(node)
    return value is not None and value.is_floating_point() and bool(node.all_input_nodes)


def _outputs(net: Callable[..., Any], sample: Sample) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(net(*_copies(sample))) if isinstance(leaf, Tensor)]


def _copies(sample: Sample) -> list[Tensor]:
    return [value.clone() for value in sample]


def _line(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"[:200]
