"""The passes before annotation are shown one at a time, in one thread, and stock's pipeline is left as it was."""

import threading

import pytest
import torch
from executorch.backends.arm.quantizer import TOSAQuantizer, arm_quantizer
from lowering import HISTOGRAM
from small import Lambda, image
from spying import raising
from stubborn import quantizer_of

from safe_arm._compat.annotation_passes import watched_passes

STOCK = getattr(arm_quantizer, "ArmPassManager", None)  # 1.2 has it elsewhere.


def transformed():
    quantizer = quantizer_of(TOSAQuantizer, config=HISTOGRAM)
    net = Lambda(lambda m, x: torch.softmax(m.conv(x), 1))
    return quantizer.transform_for_annotation(torch.export.export(net, image()).module(check_guards=False))


def test_each_pass_is_shown_in_order():
    seen = []
    with watched_passes(lambda name, module: seen.append((name, len(module.graph.nodes)))):
        model = transformed()
    names = [name for name, _ in seen]
    assert names[0] == "RemoveGraphAssertsPass"
    assert names.index("DecomposeSoftmaxPass") < names.index("ReplaceInfAndLimitValuesPass")
    assert seen[-1][1] == len(model.graph.nodes)
    assert model.code == transformed().code


def test_a_pass_is_left_out():
    with watched_passes(left_out=["DecomposeSoftmaxPass"]):
        assert "softmax" in transformed().code
    assert "softmax" not in transformed().code


def test_another_thread_gets_stock_s():
    seen, codes = [], []
    with watched_passes(lambda name, module: seen.append(name), left_out=["DecomposeSoftmaxPass"]):
        thread = threading.Thread(target=lambda: codes.append(transformed().code))
        thread.start()
        thread.join()
    assert seen == []
    assert "softmax" not in codes[0]


def test_stock_s_manager_is_put_back_whatever_happens():
    with watched_passes(raising(RuntimeError)), pytest.raises(Exception, match="show"):
        transformed()
    assert arm_quantizer.ArmPassManager is STOCK
