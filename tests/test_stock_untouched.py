"""Importing and using safe_arm changes nothing for stock classes in the same process."""

import hashlib
import inspect
import json
import subprocess
import sys
import threading

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F
from executorch.backends.arm import _passes
from executorch.backends.arm._passes.arm_pass_manager import ArmPassManager
from executorch.backends.arm.quantizer import TOSAQuantizer
from executorch.backends.arm.tosa.backend import TOSABackend
from executorch.backends.arm.tosa.partitioner import TOSAPartitioner
from lowering import delegates, lower, quantize, tosa
from small import Lambda, image
from stock import stock_lower
from stubborn import ramp

from safe_arm import SafeArmPartitioner


class Stock(nn.Module):
    """A net that stock lowers rightly."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.a, self.b = nn.Conv2d(4, 4, 3, padding=1), nn.Conv2d(4, 4, 3, padding=1)

    def forward(self, x):
        return F.relu(self.b(F.relu(self.a(x)))) + F.hardtanh(x, 0.0, 1.0)


def stock_bytes(profile, lowered_by=lower):
    net, inputs = Stock().eval(), ramp()
    graph_module = quantize(net, inputs, tosa(profile), quantizer_class=TOSAQuantizer)
    return delegates(lowered_by(graph_module, inputs, TOSAPartitioner(tosa(profile))))


def safe_bytes(profile):
    net, inputs = Lambda(lambda m, x: m.conv_b(torch.cat((F.relu(m.conv(x))[:, :2], x[:, :2]), 1))), image()
    graph_module = quantize(net, inputs, tosa(profile))
    return delegates(lower(graph_module, inputs, SafeArmPartitioner(tosa(profile), non_fuseable="propagate")))


def digest(flatbuffers):
    return [hashlib.sha256(b).hexdigest() for b in flatbuffers]


SCRIPT = """
import sys
sys.modules["safe_arm"] = None  # whoever imports it now gets an ImportError
import hashlib, json, torch, torch.nn as nn, torch.nn.functional as F
from executorch.backends.arm.quantizer import TOSAQuantizer, get_symmetric_quantization_config
from executorch.backends.arm.tosa.compile_spec import TosaCompileSpec
from executorch.backends.arm.tosa.partitioner import TOSAPartitioner
from executorch.exir import EdgeCompileConfig, to_edge_transform_and_lower

{net}

net, inputs, spec = Stock().eval(), {inputs}, TosaCompileSpec({profile!r})
quantizer = TOSAQuantizer(spec)
quantizer.set_global(get_symmetric_quantization_config(act_qmin=-128))
run = getattr(quantizer, "_quantize_with_submodules", None) or quantizer.quantize_with_submodules
exported = torch.export.export(run(torch.export.export(net, inputs).module(check_guards=False), [inputs]), inputs)
edge = EdgeCompileConfig(_check_ir_validity=False)
manager = to_edge_transform_and_lower(exported, partitioner=[TOSAPartitioner(spec)], compile_config=edge)
modules = manager.exported_program().graph_module.named_children()
print(json.dumps([hashlib.sha256(m.processed_bytes).hexdigest() for n, m in modules if n.startswith("lowered_module")]))
"""


def test_same_bytes_as_a_process_that_never_saw_us():
    profile = "TOSA-1.0+INT+FP"
    inputs = inspect.getsource(ramp).split("return ")[1].strip()
    script = SCRIPT.format(net=inspect.getsource(Stock), inputs=inputs, profile=profile)
    alone = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    safe_bytes(profile)
    assert digest(stock_bytes(profile)) == json.loads(alone.stdout.strip().splitlines()[-1])


def test_same_bytes_before_and_after_ours_was_used(profile):
    before = stock_bytes(profile, lowered_by=stock_lower)
    safe_bytes(profile)
    assert stock_bytes(profile) == before
    assert _passes.ArmPassManager is ArmPassManager


@pytest.mark.parametrize("paused", ["stock", "safe"])
def test_same_bytes_with_a_stock_and_a_safe_export_in_two_threads(monkeypatch, paused):
    """One export stands still in the middle of a delegate's lowering while the other runs from end to end.

    Free-running threads would test torch instead: torch.export itself, without any of us, breaks in two threads
    ("ProxyTorchDispatchMode slot already occupied").
    """
    profile, lowerings = "TOSA-1.0+INT+FP", {"stock": stock_bytes, "safe": safe_bytes}
    expected = {name: lowering(profile) for name, lowering in lowerings.items()}
    reached, resume = threading.Event(), threading.Event()
    preprocess_module = TOSABackend._preprocess_module

    def standing_still(*args, **kwargs):
        if threading.current_thread().name == "paused":
            reached.set()
            assert resume.wait(timeout=300)
        return preprocess_module(*args, **kwargs)

    monkeypatch.setattr(TOSABackend, "_preprocess_module", staticmethod(standing_still))
    results = {}
    thread = threading.Thread(target=lambda: results.update({paused: lowerings[paused](profile)}), name="paused")
    thread.start()
    assert reached.wait(timeout=300)
    (other,) = set(lowerings) - {paused}
    results[other] = lowerings[other](profile)
    resume.set()
    thread.join()
    assert results == expected
