"""Trial lowering: what the backend will do to a delegate, done before the delegate is proposed."""

from __future__ import annotations

import copy
from typing import Any
from weakref import WeakSet

from safe_arm._compat import seams, tools
from safe_arm._compat.extraction import TagOf, backend_of, copied, delegate_programs, tag_of
from safe_arm.partitioner.failure import Failure, failure_of
from safe_arm.partitioner.fingerprint import fingerprint
from safe_arm.partitioner.weights import weights_of


class Trials:
    """Lowers delegates on copies, counts, and keeps what succeeded with real weights for ``preprocess``.

    Args:
        time_limit: seconds one run of Vela or model-converter may take.

    Attributes:
        count: how many lowerings were tried.
        synthetic: whether any was tried with made-up weights; such a result is never kept.
    """

    def __init__(self, time_limit: float) -> None:
        self.count = 0
        self.synthetic = False
        self._time_limit = time_limit
        self._kept: dict[str, Any] = {}
        self._passed: set[str] = set()
        _ALL.add(self)

    def failures(self, program: Any, specs: dict[str, Any], tags: TagOf = tag_of) -> dict[str, Failure]:
        """Lower every delegate of a tagged program that was not lowered before.

        Args:
            program: the tagged program; it is not changed.
            specs: the delegation spec of each tag.
            tags: the tag of an operator, if not the one it bears.

        Returns:
            What failed and why, by tag.
        """
        state, real = weights_of(program)
        self.synthetic |= not real
        failed = {}
        try:
            delegates = delegate_programs(copied(program, state, tags), specs)
        except Exception as error:
            common = failure_of(error)
            alone = {t: f for tag in specs for t, f in self._cut_alone(program, specs, tags, tag).items()}
            return alone or dict.fromkeys(specs, common)
        for tag, delegate in delegates:
            if (failure := self._attempt(delegate, specs[tag], keep=real)) is not None:
                failed[tag] = failure
        return failed

    def _cut_alone(self, program: Any, specs: dict[str, Any], tags: TagOf, tag: str) -> dict[str, Failure]:
        """Find out whether one of several delegates is what cannot be cut out."""
        if len(specs) == 1:
            return {}
        return self.failures(program, {tag: specs[tag]}, lambda node: tag if tags(node) == tag else None)

    def _attempt(self, program: Any, spec: Any, *, keep: bool) -> Failure | None:
        key = fingerprint(program, spec.compile_specs)
        if key in self._passed:
            return None
        self.count += 1
        # Passes may write to parameters; these are the user's.
        program._state_dict, program._constants = copy.deepcopy((program.state_dict, program.constants))
        names: dict[str, str] = {}
        try:
            with tools.leashed(self._time_limit), seams.recording(names):
                result = backend_of(spec.backend_id).preprocess(program, spec.compile_specs)
        except (Exception, SystemExit) as error:  # Vela ends with sys.exit
            return failure_of(error, names)
        self._passed.add(key)
        if keep:
            self._kept[key] = result
        return None

    def take(self, key: str) -> Any | None:
        """Return the result kept under a fingerprint, once."""
        return self._kept.pop(key, None)


_ALL: WeakSet[Trials] = WeakSet()


def ready(program: Any, compile_specs: list[Any]) -> Any | None:
    """Return what a living partitioner's trial made of this very program, None if it has to be lowered afresh."""
    waiting = [trials for trials in _ALL if trials._kept]
    if not waiting:
        return None
    key = fingerprint(program, compile_specs)
    return next((result for trials in waiting if (result := trials.take(key)) is not None), None)
