"""Devices that delegates can be run on to be verified."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from safe_arm.core.errors import one_of
from safe_arm.verification import vulkan_device
from safe_arm.verification.delegate import Runner
from safe_arm.verification.model_process import ModelProcess
from safe_arm.verification.model_server import require_reference_model


@dataclass(frozen=True)
class Device:
    """Something that runs TOSA flatbuffers.

    Attributes:
        opened: gives what runs them, each within some seconds, until the block is left.
        require: raises a ``UsageError`` that says what to install if it cannot be used here.
    """

    opened: Callable[[float], AbstractContextManager[Runner]]
    require: Callable[[], object]


DEVICES: dict[str, Device] = {
    "reference-model": Device(ModelProcess, require_reference_model),
    "vulkan": Device(
        lambda _: nullcontext(vulkan_device.run_tosa),
        vulkan_device.require_vulkan,
    ),
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
