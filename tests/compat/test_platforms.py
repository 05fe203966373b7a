"""Where nothing of Linux is there to import or to call, everything is imported and a verified export goes through."""

import pytest
from interpreter import python

SCRIPT = """
import ctypes, importlib, os, pkgutil, sys
import executorch.backends.arm.ethosu, executorch.backends.arm.vgf, executorch.exir.program, torch.export, torchao
import executorch.backends.arm.quantizer, networkx, rich
from contextlib import suppress
with suppress(ImportError):
    import z3  # torch looks for it, and it for a library of the system's
for name in ("fcntl", "resource", "pwd", "grp", "termios", "pty", "posix"):
    sys.modules[name] = None
for name in ("fork", "confstr", "getuid", "kill", "killpg", "sysconf", "wait4", "setpgid"):
    delattr(os, name)


def loaded(name, *options, real=ctypes.CDLL, **more):
    if name is None:
        raise TypeError("argument of type 'NoneType' is not iterable")
    return real(name, *options, **more)


ctypes.CDLL = loaded
sys.platform = {platform!r}
import safe_arm
for package in ("_compat", "acceleration"):
    for module in pkgutil.iter_modules([f"{{safe_arm.__path__[0]}}/{{package}}"], f"safe_arm.{{package}}."):
        importlib.import_module(module.name)
print("imported")
"""
EXPORT = """
from executorch.backends.arm.ethosu import EthosUCompileSpec
from executorch.backends.arm.quantizer import get_symmetric_quantization_config
from executorch.exir import EdgeCompileConfig, to_edge_transform_and_lower
from safe_arm.core.versions import versions
net, image = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU()).eval(), (torch.randn(1, 3, 8, 8),)
spec = EthosUCompileSpec("ethos-u55-128")
quantizer = safe_arm.SafeEthosUQuantizer(spec)
quantizer.set_global(get_symmetric_quantization_config())
quantized = quantizer.quantize_with_submodules(torch.export.export(net, image).module(check_guards=False), [image] * 2)
partitioner = safe_arm.SafeArmPartitioner(spec)
edge = to_edge_transform_and_lower(
    torch.export.export(quantized, image), partitioner=[partitioner],
    compile_config=EdgeCompileConfig(_check_ir_validity=False),
)
assert edge.to_executorch().buffer
print([each.verified for each in partitioner.report.verifications])
print("system" in versions())
try:
    safe_arm.SafeArmPartitioner(spec, device="vulkan")
except safe_arm.UsageError as error:
    print(error)
"""


@pytest.mark.parametrize("platform", ["win32", "darwin"])
def test_everything_is_imported_and_an_export_is_verified(platform, tmp_path):
    ended = python("-c", SCRIPT.format(platform=platform) + EXPORT, cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr[-2000:]
    lines = ended.stdout.splitlines()
    assert lines[0] == "imported"
    assert lines[-3:-1] == ["[True]", "True"]
    assert lines[-1].startswith("Vulkan is for Linux, and this is ")
    assert lines[-1].endswith("; leave it out, the reference model verifies anywhere")
