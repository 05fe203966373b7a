"""The record of how a quantised program compares with the float net. Needs neither torch nor executorch."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace

from safe_arm.core.structured import structured

#: Key in ``node.meta["custom"]`` under which a quantised program carries this record as JSON.
FLOAT_COMPARISON_KEY = "safe_arm_float_comparison"


@dataclass(frozen=True)
class OutputFidelity:
    """One output of a quantised program beside the same output of the float net.

    Attributes:
        name: the output's name; ``output 0`` where the net gives it none.
        sqnr: signal to quantisation noise over all samples, in dB; None for integers and booleans.
        worst_sqnr: the lowest ratio of a single sample, in dB; None for integers and booleans.
        worst_sample: index of that sample, or of the sample with the least agreement.
        agreement: share of integers or booleans that are equal, 0 to 1; None for floats.
        worst_agreement: the least such share of a single sample; None for floats.
    """

    name: str
    sqnr: float | None = None
    worst_sqnr: float | None = None
    worst_sample: int = 0
    agreement: float | None = None
    worst_agreement: float | None = None


@dataclass(frozen=True)
class FloatComparison:
    """A quantised program beside the float net that the user exported.

    Attributes:
        outputs: one for each output; empty if they were not compared.
        samples: number of calibration samples compared.
        proven: number of sets of inputs, made up or calibration samples, on which the calibrated graph was shown to
            compute the float net up to float rounding.
        note: why something was not compared, in one sentence; empty if all was.
        method: the method of the program.
        shown: number of calibration samples that the program was calibrated on; 0 if that is not known.
    """

    outputs: tuple[OutputFidelity, ...] = ()
    samples: int = 0
    proven: int = 0
    note: str = ""
    method: str = "forward"
    shown: int = 0

    @property
    def sqnr(self) -> float | None:
        """The lowest ratio of an output over all samples, in dB; None if no float output was compared."""
        return _least(each.sqnr for each in self.outputs)

    @property
    def worst_sqnr(self) -> float | None:
        """The lowest ratio of one sample at one output, in dB; None if no float output was compared."""
        return _least(each.worst_sqnr for each in self.outputs)

    def of_method(self, method: str) -> FloatComparison:
        """Return the same record for another method."""
        return replace(self, method=method)


class Compared(str):
    """A record as JSON, which keeps some calibration samples as long as it is in memory.

    Saving a program keeps the text alone. The delegates are verified on the samples as well.

    Attributes:
        samples: for each sample the tensors that the net takes, in its order.
    """

    samples: tuple[tuple[object, ...], ...] = ()

    def __deepcopy__(self, memo: dict[int, object]) -> Compared:
        return self

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (str(self),)


def _least(ratios: Iterable[float | None]) -> float | None:
    return min((each for each in ratios if each is not None), default=None)


def to_json(comparison: FloatComparison) -> str:
    """Return a record as one line of JSON."""
    return json.dumps(asdict(comparison))


def from_json(text: str) -> FloatComparison:
    """Return the record that ``to_json`` wrote.

    Raises:
        ValueError: the text is something else.
    """
    try:
        comparison: FloatComparison = structured(FloatComparison, json.loads(text))
    except (KeyError, TypeError) as error:
        raise ValueError(f"no record of a float comparison: {error}") from error
    return comparison
