"""Run delegates on Vulkan: model-converter's output, the ML emulation layer, and any driver, even in software."""

from __future__ import annotations

import ctypes.util
import importlib.util
import json
import os
import platform
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from safe_arm.core.errors import UsageError
from safe_arm.core.processes import run as run_process
from safe_arm.verification.model_server import ReferenceModelError

#: Requirement to install and path in the package of each tool, keyed by its Python package.
_TOOLS = {
    "model_converter": (
        "ai_ml_sdk_model_converter==0.11.0",
        "binaries/bin/model-converter",
    ),
    "vgf_lib": ("ai-ml-sdk-vgf-library==0.11.0", "binaries/bin/vgf_dump"),
    "scenario_runner": (
        "ai-ml-sdk-scenario-runner==0.11.0",
        "binaries/bin/scenario-runner",
    ),
    "emulation_layer": (
        "ai-ml-emulation-layer-for-vulkan==0.11.0",
        "deploy/share/vulkan/explicit_layer.d",
    ),
}
#: The layers in the order in which a loader has to see them: the graph layer uses the tensor layer's extension.
_LAYERS = ("Graph", "Tensor")
_LOADER = "apt-get install libvulkan1"
_DRIVER = "apt-get install mesa-vulkan-drivers"
#: A text in scenario-runner's output, and what it means for the user.
_ENVIRONMENT = (
    (
        "ErrorIncompatibleDriver",
        f"no Vulkan driver is installed; install a software one with: {_DRIVER}",
    ),
    (
        "ErrorInitializationFailed",
        f"no Vulkan driver works here; install a software one with: {_DRIVER}",
    ),
    (
        "ErrorFeatureNotPresent",
        "this Vulkan driver has not the features the ML emulation layer needs; "
        f"try Mesa's software driver: {_DRIVER}, and set VK_DRIVER_FILES to its lvp_icd JSON file",
    ),
    (
        "Cannot find queue index",
        "this Vulkan driver runs no data graphs, and the ML emulation layer was not loaded; "
        "install it again with: pip install --force-reinstall ai-ml-emulation-layer-for-vulkan==0.11.0",
    ),
    (
        "ErrorLayerNotPresent",
        "the ML emulation layer cannot be loaded; it needs Linux on x86-64 or arm64 with glibc 2.35",
    ),
)
#: Seconds that one run of a tool may take; compiling a graph's shaders on a CPU takes a few.
TIME_LIMIT = 600.0
_QUOTED = 300


class VulkanError(ReferenceModelError):
    """Vulkan, or what leads there, rejects a delegate."""


def require_vulkan() -> None:
    """Check that delegates can be run on Vulkan.

    Raises:
        UsageError: a tool, the loader or a driver is missing; the message says what to install.
    """
    require_system()
    for package in _TOOLS:
        _tool(package)
    if ctypes.util.find_library("vulkan") is None:
        raise UsageError(
            f"no Vulkan loader (libvulkan.so.1) is installed; install it with: {_LOADER}"
        )


def require_system() -> None:
    """Check that this system is one that the ML emulation layer runs on.

    Raises:
        UsageError: it is not.
    """
    if not sys.platform.startswith("linux"):
        raise UsageError(
            f"Vulkan is for Linux, and this is {platform.system()}; leave it out, the reference model verifies anywhere"
        )


def missing_packages() -> list[str]:
    """Return the pip requirements of the tools that are not installed."""
    return [
        install for package, (install, _) in _TOOLS.items() if _path(package) is None
    ]


def run_tosa(flatbuffer: bytes, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """Convert one TOSA flatbuffer to VGF and run it on Vulkan.

    Args:
        flatbuffer: the bytes a TOSA delegate ships.
        inputs: one tensor for each input, in the delegate's order and dtypes.

    Raises:
        VulkanError: model-converter or the device rejects the graph.
        UsageError: something is missing on this machine; the message says what to install.
    """
    require_vulkan()
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "delegate.tosa")
        vgf = Path(folder, "delegate.vgf")
        source.write_bytes(flatbuffer)
        _run([_tool("model_converter"), "-i", source, "-o", vgf])
        return run_vgf(vgf.read_bytes(), inputs)


def run_vgf(vgf: bytes, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """Run one VGF file on Vulkan.

    Args:
        vgf: the bytes a VGF delegate ships.
        inputs: one tensor for each input, in the file's order; shapes are taken from the file.

    Raises:
        VulkanError: the device rejects the graph, or the inputs do not fit it.
        UsageError: something is missing on this machine; the message says what to install.
    """
    require_vulkan()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "delegate.vgf").write_bytes(vgf)
        template = "-i delegate.vgf --scenario-template -o template.json"
        _run([_tool("vgf_lib"), *template.split()], folder)
        scenario = json.loads((folder / "template.json").read_text())
        outputs = _placed(scenario, inputs, folder)
        (folder / "scenario.json").write_text(json.dumps(scenario))
        options = "--scenario scenario.json --log-level warning"
        runner = _tool("scenario_runner")
        _run([runner, *options.split()], folder, _layers(folder))
        return [torch.from_numpy(np.load(path)) for path in outputs]


def _tool(package: str) -> Path:
    path = _path(package)
    if path is not None:
        return path
    install, _ = _TOOLS[package]
    needed = install.split("==")[0]
    raise UsageError(
        f"running delegates on Vulkan needs {needed}; install it with: pip install {install}"
    )


def _path(package: str) -> Path | None:
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.origin:
        return None
    path = Path(spec.origin).parent / _TOOLS[package][1]
    return path if path.exists() else None


def _placed(
    scenario: dict[str, Any], inputs: list[torch.Tensor], folder: Path
) -> list[Path]:
    """Write the inputs where a scenario looks for them and return where it will leave its outputs."""
    sources = _tensors(scenario, "src")
    results = _tensors(scenario, "dst")
    if len(sources) != len(inputs):
        raise VulkanError(
            f"the VGF file has {len(sources)} inputs and {len(inputs)} were given"
        )
    for index, (tensor, value) in enumerate(zip(sources, inputs, strict=True)):
        array = np.ascontiguousarray(value.detach().numpy())
        if array.size != int(np.prod(tensor["dims"])):
            shapes = f"has shape {tensor['dims']}, given was {list(value.shape)}"
            raise VulkanError(f"input {index} of the VGF file {shapes}")
        # Neither TOSA nor VGF knows an unsigned type of its own.
        if array.dtype == np.uint8:
            array = array.view(np.int8)
        tensor["src"] = f"input_{index}.npy"
        np.save(folder / tensor["src"], array.reshape(tensor["dims"]))
    for index, tensor in enumerate(results):
        tensor["dst"] = f"output_{index}.npy"
    return [folder / tensor["dst"] for tensor in results]


def _tensors(scenario: dict[str, Any], role: str) -> list[dict[str, Any]]:
    """Return the tensors of a scenario that are read or written, as the role says, in the order of their numbers."""
    tensors = []
    for resource in scenario["resources"]:
        if role in resource.get("tensor", ()):
            tensors.append(resource["tensor"])
    return sorted(tensors, key=lambda tensor: int(tensor["uid"].split("_")[1]))


def _layers(folder: Path) -> dict[str, str]:
    """Return the variables that load the emulation layers.

    Debian 12's loader orders layers by directory, so each gets one of its own.
    """
    manifests = _tool("emulation_layer")
    directories = []
    names = []
    for number, layer in enumerate(_LAYERS):
        manifest = json.loads((manifests / f"VkLayer_{layer}.json").read_text())
        library = manifests.parents[2] / "lib" / manifest["layer"]["library_path"]
        manifest["layer"]["library_path"] = str(library)
        directory = folder / f"layer_{number}"
        directory.mkdir()
        (directory / f"VkLayer_{layer}.json").write_text(json.dumps(manifest))
        directories.append(str(directory))
        names.append(f"VK_LAYER_ML_{layer}_Emulation")
    return {
        "VK_LAYER_PATH": os.pathsep.join(directories),
        "VK_INSTANCE_LAYERS": os.pathsep.join(names),
    }


def _run(
    command: Sequence[str | Path],
    folder: Path | None = None,
    variables: dict[str, str] | None = None,
) -> None:
    name = Path(command[0]).name
    ended = run_process(
        command,
        seconds=TIME_LIMIT,
        environment={**os.environ, **(variables or {})},
        folder=folder,
    )
    if not ended.started:  # It says nothing of the delegate.
        raise OSError(f"{name} cannot be started: {ended.stderr}")
    if ended.timed_out:
        raise VulkanError(f"{name} did not finish within {TIME_LIMIT:g} s")
    if ended.good:
        return
    output = " ".join(ended.output.split())
    for sign, advice in _ENVIRONMENT:
        if sign in output:
            raise UsageError(advice)
    raise VulkanError(
        f"{name} exits {ended.status}: {output[-_QUOTED:] or 'and says nothing'}"
    )
