"""Safe exports side by side give the bytes of one alone, and ``uninstall`` leaves nothing of ours in other packages."""

import hashlib
import json
import subprocess
import sys
import threading

import torch
from interpreter import python
from lowering import PROFILES, delegates, lower, quantize, tosa
from small import Lambda, image

from safe_arm import SafeArmPartitioner


def digests(profile):
    """What a safe export of a net with a refused island and two delegates gives."""
    net = Lambda(lambda m, x: m.conv_b(torch.cat((torch.relu(m.conv(x))[:, :2], x[:, :2]), 1)).sort(-1)[0] + x)
    lowered = delegates(lower(quantize(net, image(), tosa(profile)), image(), SafeArmPartitioner(tosa(profile))))
    return [hashlib.sha256(each).hexdigest() for each in lowered]


SCRIPT = """
import json, sys
sys.path[:0] = {path!r}
from test_side_by_side import digests
print(json.dumps(digests({profile!r})))
"""


def path():
    return [__file__.rpartition("/")[0], *sys.path]


def test_two_processes_at_once(profile):
    alone = digests(profile)
    script = SCRIPT.format(path=path(), profile=profile)
    both = [subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    printed = [process.communicate()[0].splitlines()[-1] for process in both]
    assert [json.loads(line) for line in printed] == [alone, alone]
    assert alone


def test_threads_one_after_another():
    alone = {profile: digests(profile) for profile in PROFILES}
    results = []
    for profile in (*PROFILES, *reversed(PROFILES)):
        thread = threading.Thread(target=lambda profile=profile: results.append((profile, digests(profile))))
        thread.start()
        thread.join()
    assert results == [(profile, alone[profile]) for profile in (*PROFILES, *reversed(PROFILES))]


LEFT = """
import json, sys, types
sys.path[:0] = {path!r}
from test_side_by_side import digests
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

digests({profile!r})
installed = ours()
seams.uninstall()
print(json.dumps([[name.rpartition(".")[2] for name in installed], ours()]))
"""


def test_after_uninstall_no_function_of_ours_is_in_anybody_else_s_module():
    script = LEFT.format(path=path(), profile=PROFILES[1])
    result = python("-c", script)
    assert result.returncode == 0, result.stderr[-2000:]
    installed, left = json.loads(result.stdout.splitlines()[-1])
    some = {"recompile", "call", "run_decompositions", "__subclasses__", "main", "run", "_fuse_conv_bn_"}
    assert some <= set(installed)
    assert left == []
