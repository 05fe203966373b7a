"""Warn once about calibration that spoils a net, by the name of the input.

Too little of it: a single sample, or the same value everywhere. Values that take the range from all others: in half of
the samples 99.9 % of the values, zeros apart, are within one step of the quantiser. Measured in steps of int8, these
99.9 % are 0.001 for one value of 1e6 among N(0, 1) and 0.8 for one of 1e3; images have 250, audio and embeddings 100,
Laplace 80, exp(N(0, 1)) 60, power spectra 34, quiet audio with 0.1 % of clicks 8, Student's t of two degrees 5.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.fx import GraphModule

from safe_arm.core.doubts import doubtful_tensors, infinite_factors, merged_inputs
from safe_arm.core.errors import warn_of_doubt
from safe_arm.quantizer.calibration.input_statistics import InputStatistics
from safe_arm.quantizer.graphs.graph_edits import tensor_of

if TYPE_CHECKING:
    from safe_arm.quantizer.calibration.untaken_branches import Branches

#: The warning about a sample of other sizes than the net's.
_OTHER_SIZES = (
    "input {0!r} was calibrated at {1}, and the net was exported for {2}: its graph holds sizes of the latter, such as "
    "that of a pool over the whole image; calibrate at the exported sizes, or export with dynamic_shapes"
)
#: The warning about a config for training where nothing is trained.
_CONFIG_OF_TRAINING = (
    "the model is calibrated with a config for training, whose ranges follow the first samples and clip the others: "
    "pass is_qat=False to the function that makes the config (the default of get_symmetric_a8w4_quantization_config is "
    "True), or train with prepare_qat_pt2e"
)
#: The warning about a model that is converted as it was prepared.
_UNCALIBRATED = (
    "the model is converted without calibration: its scales are made up, and its results are wrong; call the prepared "
    "model on some dozens of samples before convert_pt2e, or hand them to quantize_with_submodules"
)
#: The warning about a sample, by its number and the name of the input.
_NOT_A_NUMBER = (
    "calibration sample {} has {} in input {!r}: no range can be learnt from it, so that what is computed of this "
    "input stays float; leave the sample out"
)
#: The warning about a sample whose infinities an observer passes over.
_INFINITE = (
    "calibration sample {} has infinity in input {!r}: its range is learnt from the other values, and the infinity is "
    "clipped to it; leave the sample out"
)
#: The warning about sums over a dynamic size that all samples have.
_OF_ONE_SIZE = (
    "input {0!r} has a dynamic size over which the net sums, as softmax and norms do, and calibration has seen only "
    "{1}: at larger sizes the sums are clipped, and at smaller ones few steps are left of them; calibrate on samples "
    "of the smallest and of the largest size"
)
#: Steps of its quantiser that the ordinary values of an input reach at least.
_STEPS = 1.0
#: Ordinary values in no unit are so large; sums of their products leave float32.
_TOO_LARGE = 1e20


def doubt_of_config(
    observers: Iterable[object],
    exported_in_training: str,
    is_calibrated: bool,
) -> str:
    """Return what is doubtful about a config; empty if nothing is.

    Args:
        observers: the observers, or fake-quantise modules, that it gives.
        exported_in_training: what is said of a net that was exported in training mode; empty if it was not.
        is_calibrated: whether the net is not going to be trained.
    """
    trains = any(hasattr(each, "activation_post_process") for each in observers)
    if not trains:
        return exported_in_training
    return _CONFIG_OF_TRAINING if is_calibrated else ""


def doubts_of(model: GraphModule) -> tuple[str, ...]:
    """Return what makes the quantisation of a float graph poor, of its weights and states."""
    parameters = dict(model.named_parameters())
    others = dict(model.named_buffers())
    for node in model.graph.find_nodes(op="placeholder"):
        value = tensor_of(node)
        if value is not None:
            others[str(node.target)] = value
    return (
        *doubtful_tensors(parameters, others),
        *infinite_factors(model),
        *merged_inputs(model),
    )


@dataclass
class _Seen:
    """The calibration samples of one input.

    Attributes:
        first: the first sample; None when the model is converted.
        statistics: of all samples.
        count: how many there were.
        differ: whether any was unlike the first.
    """

    first: Tensor | None
    statistics: InputStatistics
    count: int = 1
    differ: bool = False

    @property
    def constant(self) -> bool:
        """True if all values are the same."""
        return self.statistics.low == self.statistics.high


class CalibrationWatch:
    """Looks at the quantised inputs of one model; every copy of the model is watched by the same one.

    Attributes:
        over: the model is converted.
        was_shown: a sample has reached an observer of the model.
        was_loaded: the first such observer had a range already, loaded from a model that was shown other samples.
        branches: those of the model's conditions and loops.
    """

    def __init__(self) -> None:
        self.was_shown = False
        self.was_loaded = False
        self._inputs: dict[str, _Seen] = {}
        self._judged: set[str] = set()
        self._have_nan: set[str] = set()
        self._sizes: dict[str, list[int] | None] = {}
        self._of_other_sizes: set[str] = set()
        self._summed: dict[str, list[int]] = {}
        self._lengths: dict[str, set[tuple[int, ...]]] = {}
        self.over = False
        self.branches: list[Branches] = []
        self._was_missed = False

    def __deepcopy__(self, memo: dict[int, Any]) -> CalibrationWatch:
        return self

    def expect(self, name: str, sizes: list[int] | None) -> None:
        """Take note of the sizes for which the net was exported; None if one of them is dynamic.

        Inputs of the branches of control flow may have one name and several sizes, which are not looked at.
        """
        if self._sizes.setdefault(name, sizes) != sizes:
            self._sizes[name] = None

    def expect_sums(self, name: str, dims: list[int]) -> None:
        """Take note of the dimensions of an input whose dynamic sizes the net sums over."""
        self._summed[name] = dims

    def show(self, name: str, sample: Tensor) -> None:
        """Take note of a sample that an input is shown."""
        if self.over or not sample.numel():
            return
        sample = sample.detach()
        seen = self._inputs.get(name)
        self._look_at_sizes(name, sample)
        if self._summed.get(name):
            sizes = tuple(sample.shape[dim] for dim in self._summed[name])
            self._lengths.setdefault(name, set()).add(sizes)
        if seen is None:
            seen = _Seen(sample.clone(), InputStatistics.of(sample))
            seen.differ = self._has_several(name, sample)
            self._inputs[name] = seen
            return
        seen.statistics.add(sample)
        seen.count += 1
        seen.differ = seen.differ or (
            seen.first is not None and not torch.equal(seen.first, sample)
        )

    def _look_at_sizes(self, name: str, sample: Tensor) -> None:
        """Say once of an input that a sample of it has other sizes than the export; a batch may be larger."""
        sizes = self._sizes.get(name)
        if sizes is None or name in self._of_other_sizes:
            return
        given = list(sample.shape)
        if given[1:] != sizes[1:] or len(given) != len(sizes):
            self._of_other_sizes.add(name)
            doubt = _OTHER_SIZES.format(name, tuple(given), tuple(sizes))
            warn_of_doubt(doubt)

    def _has_several(self, name: str, sample: Tensor) -> bool:
        """Tell whether a sample is a batch of several that differ, of a net that was exported for fewer."""
        sizes = self._sizes.get(name)
        if not sizes or not sizes[0] or sample.dim() != len(sizes):
            return False
        if len(sample) < 2 * sizes[0]:
            return False
        first, *others = sample.split(sizes[0])
        return not torch.equal(first, others[0])

    def miss_number(self, name: str, missing: str) -> None:
        """Say once of an input that the sample it was shown last, the first that has any, has NaN or infinity."""
        if name not in self._have_nan:
            self._have_nan.add(name)
            # Samples are counted from 0, as in the errors.
            number = self._inputs[name].count - 1
            doubt = _NOT_A_NUMBER.format(number, missing, name)
            warn_of_doubt(doubt)

    def pass_over_infinity(self, name: str) -> None:
        """Say once of an input that an observer passed over infinities in the sample it was shown last.

        The infinities of a mask, whose other values are all alike, are as they should be.
        """
        seen = self._inputs[name]
        has_infinity = seen.statistics.high == math.inf
        if seen.statistics.varied:
            has_infinity = has_infinity or seen.statistics.low == -math.inf
        if has_infinity and name not in self._have_nan:
            self._have_nan.add(name)
            warn_of_doubt(_INFINITE.format(seen.count - 1, name))

    def warn(self) -> None:
        """Say once what is wrong with the samples, when the model is converted."""
        if not self.over:
            self.over = True
            for finding in self.findings():
                warn_of_doubt(finding)
            for seen in self._inputs.values():
                seen.first = None  # The samples are the user's to keep.

    def miss(self) -> None:
        """Say once that no sample has reached any observer of the model."""
        if not self._was_missed:
            self._was_missed = True
            warn_of_doubt(_UNCALIBRATED)

    def judge(
        self,
        name: str,
        step: float,
        levels: int,
    ) -> bool:
        """Say once what an input's quantiser makes of its samples; return whether there was anything to say.

        Args:
            name: the input.
            step: the step of its quantiser.
            levels: number of steps between its smallest and its largest code.
        """
        seen = self._inputs.get(name)
        if seen is None or seen.constant or name in self._judged:
            return False
        self._judged.add(name)
        findings = list(lost_values(name, seen.statistics, step, levels))
        for finding in findings:
            warn_of_doubt(finding)
        return bool(findings)

    def take_all_branches(self) -> None:
        """Show samples to the branches that none has reached, and to those within them."""
        while self.branches:
            self.branches.pop().take_all()

    def findings(self) -> Iterator[str]:
        """Yield what is wrong with the samples; nothing where those of another model came before them."""
        if self.was_loaded:
            return
        for name, lengths in self._lengths.items():
            if len(lengths) == 1:
                (sizes,) = lengths
                yield _OF_ONE_SIZE.format(name, " x ".join(map(str, sizes)))
        constant = {name: seen for name, seen in self._inputs.items() if seen.constant}
        for name, seen in constant.items():
            value = seen.statistics.low + 0.0  # -0.0 becomes 0.0.
            yield (
                f"input {name!r} is {value:g} everywhere in the calibration data: no range can be learnt "
                "from it, so real inputs are clipped; calibrate on real samples"
            )
        differ = any(seen.differ for seen in self._inputs.values())
        if len(constant) < len(self._inputs) and not differ:
            count = max(seen.count for seen in self._inputs.values())
            data = "a single sample"
            if count > 1:
                data = f"{count} samples that are all the same"
            yield f"the model was calibrated on {data}: what other inputs reach beyond it is clipped; give some dozens"


def lost_values(
    name: str, statistics: InputStatistics, step: float, levels: int
) -> Iterator[str]:
    """Yield what of an input its quantiser cannot tell apart.

    Args:
        name: the input.
        statistics: of its samples.
        step: the step of its quantiser.
        levels: number of steps between its smallest and its largest code.
    """
    ordinary = statistics.ordinary
    if ordinary is None:
        return
    largest = max(abs(statistics.low), abs(statistics.high))
    if ordinary > _TOO_LARGE and statistics.varied:
        yield (
            f"input {name!r} has values of {ordinary:.3g} in the calibration data: sums of their products leave "
            "float32; check how the samples are scaled"
        )
    if ordinary < _STEPS * step:
        taken = ordinary < _STEPS * _full_step(statistics, levels)
        yield _lost(name, ordinary, largest, step, taken=taken)


def _lost(
    name: str, ordinary: float, largest: float, step: float, *, taken: bool
) -> str:
    what = f"input {name!r}: in half of the calibration samples nearly all values stay within {ordinary:.3g}"
    lost = f"a step of its quantiser is {step:.3g}, so these values are lost"
    if taken:
        return (
            f"{what}, and the largest value is {largest:.3g}, {largest / ordinary:.3g} times as much: {lost}; leave "
            "out the samples with such values, or clip them"
        )
    return f"{what}: {lost}; scale the input up, or keep what it is joined with apart"


def _full_step(statistics: InputStatistics, levels: int) -> float:
    """Return the step of a quantiser that covers an input's values and 0."""
    return (max(statistics.high, 0.0) - min(statistics.low, 0.0)) / levels
