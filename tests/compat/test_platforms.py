"""Nothing in ``_compat`` and ``acceleration`` needs Linux to be imported and installed."""

import subprocess
import sys

import pytest

SCRIPT = """
import importlib, os, pkgutil, sys
import executorch.backends.arm.ethosu, executorch.backends.arm.vgf, executorch.exir.program, torch.export, torchao
import executorch.backends.arm.quantizer, networkx, rich
for name in ("fcntl", "resource", "pwd", "grp", "termios", "pty", "posix"):
    sys.modules[name] = None
for name in ("fork", "confstr", "getuid", "kill"):
    delattr(os, name)
sys.platform = {platform!r}
import safe_arm
for package in ("_compat", "acceleration"):
    for module in pkgutil.iter_modules([f"{{safe_arm.__path__[0]}}/{{package}}"], f"safe_arm.{{package}}."):
        importlib.import_module(module.name)
print("imported")
"""


@pytest.mark.parametrize("platform", ["win32", "darwin"])
def test_everything_is_imported_where_nothing_of_linux_is(platform):
    script = SCRIPT.format(platform=platform)
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert result.stdout == "imported\n", result.stderr[-2000:]
