"""What delegates can be run on to be verified."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from safe_arm.core.errors import one_of
from safe_arm.verification import reference_model, vulkan_device
from safe_arm.verification.delegate import Runner


@dataclass(frozen=True)
class Device:
    """Something that runs TOSA flatbuffers.

    Attributes:
        run: runs one.
        require: raises a ``UsageError`` that says what to install if it cannot be used here.
    """

    run: Runner
    require: Callable[[], object]


DEVICES: dict[str, Device] = {
    "reference-model": Device(reference_model.run_tosa, reference_model.require_reference_model),
    "vulkan": Device(vulkan_device.run_tosa, vulkan_device.require_vulkan),
}


def device(name: str) -> Device:
    """Return a device that can be used.

    Raises:
        UsageError: there is none of that name, or something it needs is missing on this machine.
    """
    if name not in DEVICES:
        raise one_of("device", name, list(DEVICES))
    DEVICES[name].require()
    return DEVICES[name]
