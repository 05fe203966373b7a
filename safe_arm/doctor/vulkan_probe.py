"""Probe Vulkan and the ML emulation layer, which run VGF files on this machine; no target needs them."""

from __future__ import annotations

from pathlib import Path

from safe_arm.core.processes import run_python
from safe_arm.core.versions import installed
from safe_arm.doctor.finding import SECONDS, Probed, State

_RUN = """
import sys
from pathlib import Path
import torch
from safe_arm.core.errors import UsageError
from safe_arm.verification import vulkan_device
try:
    vulkan_device.require_system()
except UsageError as error:
    print(error, file=sys.stderr)
    sys.exit(3)
if missing := vulkan_device.missing_packages():
    names = ", ".join(each.partition("==")[0] for each in missing)
    print(f"not installed: {names}; install it with: pip install {' '.join(missing)}", file=sys.stderr)
    sys.exit(3)
codes = torch.arange(256, dtype=torch.uint8).view(torch.int8).reshape(1, 8, 8, 4)
try:
    (output,) = vulkan_device.run_tosa(Path(sys.argv[1]).read_bytes(), [codes])
except UsageError as error:
    print(error, file=sys.stderr)
    sys.exit(3)
if not torch.equal(output.reshape(codes.shape), codes.clamp(-3, 5)):
    sys.exit("it computes a CLAMP wrong")
"""
_MISSING = 3


def vulkan(tiny: Path) -> Probed:
    """Run a graph on Vulkan, through model-converter, scenario-runner and the ML emulation layer.

    Args:
        tiny: the TOSA flatbuffer of ``safe_arm.verification.tiny_graph``.
    """
    version = installed("ai-ml-emulation-layer-for-vulkan")
    if not tiny.exists():
        detail = "not tried: there is no TOSA graph to run"
        return Probed(State.MISSING, version, detail)
    ended = run_python("-c", _RUN, tiny, seconds=SECONDS)
    if ended.good:
        detail = "the ML emulation layer and a driver run a CLAMP of 256 values, and it is right"
        return Probed(State.OK, version, detail)
    detail, _, fix = ended.last_words.partition("; install it with: ")
    state = State.MISSING if ended.status == _MISSING else State.BROKEN
    return Probed(state, version, detail, fix, ended.stderr)
