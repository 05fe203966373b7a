"""``uninstall`` leaves nothing of ours in other packages."""

import json
import sys

from interpreter import python

SCRIPT = """
import json, sys, types
sys.path[:0] = {path!r}
import many_exports
import safe_arm
from safe_arm import seams

def held():
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] in ("torch", "torchao", "executorch", "ethosu"):
            inner = [v for v in vars(module).values() if isinstance(v, (type, types.SimpleNamespace))]
            for owner in (module, *inner):
                for attribute, value in list(vars(owner).items()):
                    yield owner, attribute, value

def ours():
    found = set()
    for owner, attribute, value in held():
        value = value.__func__ if isinstance(value, (staticmethod, classmethod)) else value
        value = value.fget if isinstance(value, property) else value
        file = value.__code__.co_filename if isinstance(value, types.FunctionType) else ""
        if file.startswith(safe_arm.__path__[0]):
            found.add(f"{{getattr(owner, '__name__', owner)}}.{{attribute}}")
    return sorted(found)

many_exports.export(0)
installed = ours()
seams.uninstall()
print(json.dumps([[name.rpartition(".")[2] for name in installed], ours()]))
"""


def test_after_uninstall_no_function_of_ours_is_in_anybody_else_s_module():
    result = python("-c", SCRIPT.format(path=sys.path))
    assert result.returncode == 0, result.stderr[-2000:]
    installed, left = json.loads(result.stdout.splitlines()[-1])
    some = {"recompile", "call", "run_decompositions", "__subclasses__", "main", "run", "_fuse_conv_bn_"}
    assert some <= set(installed)
    assert left == []
