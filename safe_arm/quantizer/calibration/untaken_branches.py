"""A branch that no calibration sample takes is calibrated on what reaches its condition.

Stock makes zeros of its values, because they have no ranges; a branch that stays float keeps the whole condition from
the accelerator.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor

from safe_arm.core.errors import warn_of_doubt
from safe_arm.core.exceptions import attempted
from safe_arm.quantizer.calibration.calibration_watch import CalibrationWatch
from safe_arm.quantizer.calibration.guarded_observers import GuardedObserver

#: Samples that are kept for a branch.
_KEPT = 16
#: The warning about a branch.
_UNTAKEN = (
    "no calibration sample takes the {}: it is calibrated on what the samples bring there, which may be other values "
    "than it gets; give samples that take each branch"
)


class Branches:
    """The branches of a condition, or the condition and the body of a loop; they take the same operands."""

    def __init__(
        self,
        names: Sequence[str],
        branches: Sequence[nn.Module],
        watch: CalibrationWatch,
    ) -> None:
        self._untaken = dict(zip(names, branches, strict=True))
        self._operands: list[list[Tensor | int]] = []
        self._hooks = []
        for branch in branches:
            self._hooks.append(branch.register_forward_pre_hook(self._take))
        watch.branches.append(self)

    def _take(self, branch: nn.Module, operands: tuple[Tensor | int, ...]) -> None:
        """Keep what one branch is given until the other is taken."""
        is_traced = any(isinstance(operand, FakeTensor) for operand in operands)
        if is_traced or torch.compiler.is_compiling():
            return
        for name, untaken in list(self._untaken.items()):
            if untaken is branch:
                del self._untaken[name]
        if not self._untaken:
            self._operands.clear()
        elif len(self._operands) < _KEPT:
            self._operands.append([_kept(operand) for operand in operands])

    def take_all(self) -> None:
        """Call the branch that no sample has taken; no sample comes any more."""
        for hook in self._hooks:
            hook.remove()
        if not self._operands:
            return
        for name, branch in self._untaken.items():
            if any(isinstance(each, GuardedObserver) for each in branch.modules()):
                doubt = _UNTAKEN.format(name)
                warn_of_doubt(doubt)
            with torch.no_grad():
                for operands in self._operands:
                    attempted(branch, *operands)


def _kept(operand: Tensor | int) -> Tensor | int:
    """Return a copy of what a branch is given: a tensor, or a dynamic size."""
    return operand.detach().clone() if isinstance(operand, Tensor) else operand
