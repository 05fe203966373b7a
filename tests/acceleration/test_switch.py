"""SAFE_ARM_ACCELERATION=0: the same bytes, nothing of torch touched, and only slower."""

import json
import sys

import pytest
from interpreter import python

from safe_arm import seams
from safe_arm.acceleration import switch

SCRIPT = """
import hashlib, json, sys
sys.path[:0] = {path!r}
from executorch.exir.pass_base import ExportPass
from lowering import delegates, lower, quantize, tosa
from safe_arm import SafeArmPartitioner
from safe_arm import seams
from safe_arm.acceleration import retrace_in_place
from small import Residual, image

patches = {torch_patches}
before = [vars(owner)[name] for owner, name in patches]
touched, in_place, retraces = [], [], []
retrace, make = ExportPass.call_submodule, retrace_in_place.RetracesInPlace.__init__

def counting(self, *args):
    retraces.append(type(self).__name__)
    touched.extend(name for (owner, name), stock in zip(patches, before) if vars(owner)[name] is not stock)
    return retrace(self, *args)

def noting(self, propagation):
    in_place.append(type(propagation).__name__)
    return make(self, propagation)

ExportPass.call_submodule, retrace_in_place.RetracesInPlace.__init__ = counting, noting
net = quantize(Residual(3).eval(), image(), tosa({profile!r}))
lowered = delegates(lower(net, image(), SafeArmPartitioner(tosa({profile!r}))))
digests = [hashlib.sha256(each).hexdigest() for each in lowered]
print(json.dumps([digests, sorted(set(touched)), sorted(set(in_place)), len(retraces)]))
"""


def run(value, profile):
    torch_patches = [(patch.owner, patch.name) for patch in switch_on_patches() if root_of(patch.owner) == "torch"]
    imports = "; ".join(sorted({f"import {module_of(owner)}" for owner, _ in torch_patches}))
    listed = "[" + ", ".join(f"({path_of(owner)}, {name!r})" for owner, name in torch_patches) + "]"
    script = SCRIPT.format(path=sys.path, profile=profile, torch_patches=listed)
    result = python("-c", f"{imports}\n{script}", **({switch.SWITCH: value} if value else {}))
    assert result.returncode == 0, result.stderr[-2000:]
    return json.loads(result.stdout.splitlines()[-1])


def module_of(owner):
    return getattr(owner, "__module__", None) or owner.__name__


def path_of(owner):
    return owner.__name__ if not isinstance(owner, type) else f"{owner.__module__}.{owner.__qualname__}"


def root_of(owner):
    return module_of(owner).split(".")[0]


def switch_on_patches():
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(switch.SWITCH, raising=False)
        return seams.patches()


def test_off_gives_the_same_bytes_more_slowly_and_leaves_torch_alone(profile):
    on, off = run("", profile), run("0", profile)
    assert on[0] == off[0] != []
    assert {*on[1]} == {patch.name for patch in switch_on_patches() if root_of(patch.owner) == "torch"} != set()
    assert off[1] == []
    assert on[2] or not off[2]
    assert off[2] == []
    assert off[3] >= on[3]


def test_off_installs_what_is_needed_for_being_right_and_no_more(monkeypatch):
    on = seams.patches()
    monkeypatch.setenv(switch.SWITCH, "0")
    off = seams.patches()
    assert [(patch.owner, patch.name) for patch in off] == [(patch.owner, patch.name) for patch in on[: len(off)]]
    assert {root_of(patch.owner) for patch in off} == {"executorch"}
    assert "torch" in {root_of(patch.owner) for patch in on}
