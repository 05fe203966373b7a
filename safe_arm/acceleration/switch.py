"""All of acceleration at once; with ``SAFE_ARM_ACCELERATION=0`` in the environment there is none.

The switch is read when patches are installed and when a delegate's pipeline is built. Off, nothing of torch is
touched and a lowering gives the same bytes; it only takes longer.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from safe_arm._compat.patches import Patch
from safe_arm.acceleration import (
    decompositions,
    delegate_cuts,
    entry_points,
    fake_values,
    idle_passes,
    late_code,
    long_constants,
    provenance,
    signatures,
)

SWITCH = "SAFE_ARM_ACCELERATION"


def is_on() -> bool:
    """Tell whether the environment leaves acceleration on."""
    return os.environ.get(SWITCH) != "0"


def patches() -> tuple[Patch, ...]:
    """Return what acceleration puts into torch and ExecuTorch; nothing if it is off."""
    modules = (
        *(entry_points, decompositions, delegate_cuts, long_constants, fake_values),
        *(idle_passes, late_code, provenance, signatures),
    )
    return (
        tuple(patch for module in modules for patch in module.PATCHES)
        if is_on()
        else ()
    )


@contextmanager
def lowering() -> Iterator[None]:
    """Make the lowering of one delegate fast while the block runs; without the patches nothing happens."""
    with (
        fake_values.remembered(),
        late_code.late(),
        long_constants.whole(),
        signatures.cached(),
    ):
        yield
