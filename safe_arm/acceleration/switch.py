"""Turn on all shortcuts of a step at once; ``SAFE_ARM_ACCELERATION=0`` in the environment turns acceleration off.

The switch is read when patches are installed and when a delegate's pipeline is built. If it is off, nothing of torch is
patched, and a lowering takes longer to give the same bytes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from safe_arm.acceleration import (
    decompositions,
    delegate_cuts,
    fake_values,
    idle_passes,
    late_code,
    old_objects,
    provenance,
)

SWITCH = "SAFE_ARM_ACCELERATION"


def is_on() -> bool:
    """Tell whether the environment leaves acceleration on."""
    return os.environ.get(SWITCH) != "0"


@contextmanager
def generating() -> Iterator[None]:
    """Make the way to the edge program fast while the block runs, for programs that go to our partitioner alone.

    ``to_edge_transform_and_lower`` makes a dozen traces before a partitioner sees the program. The result is the same,
    node by node. Without the patches this has no effect.
    """
    with (
        decompositions.merged(),
        fake_values.remembered(),
        idle_passes.skipped(),
        late_code.late(),
        _old_objects_left_alone(),
        provenance.shared(),
    ):
        yield


@contextmanager
def cutting() -> Iterator[None]:
    """Make the cutting of a program into our delegates fast while the block runs."""
    with (
        delegate_cuts.cheap(),
        fake_values.remembered(),
        late_code.late(),
        _old_objects_left_alone(),
    ):
        yield


@contextmanager
def running_passes() -> Iterator[None]:
    """Make passes over a graph fast while the block runs."""
    with (
        fake_values.remembered(),
        late_code.late(),
    ):
        yield


def _old_objects_left_alone() -> AbstractContextManager[None]:
    return old_objects.left_alone() if is_on() else nullcontext()
