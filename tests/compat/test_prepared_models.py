"""What torchao prepares and converts for our quantisers is seen, what it does for others is not."""

import torch
from executorch.backends.arm.quantizer import TOSAQuantizer
from lowering import HISTOGRAM, tosa
from small import Lambda, image
from stubborn import quantizer_of
from torchao.quantization.pt2e import quantize_pt2e
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

from safe_arm import SafeTOSAQuantizer, seams
from safe_arm._compat.patches import INSTALLED
from safe_arm._compat.prepared_models import watch_models
from safe_arm.core.float_comparison import FLOAT_COMPARISON_KEY
from safe_arm.quantizer.proof import float_run


def converted(quantizer_class):
    quantizer = quantizer_of(quantizer_class, config=HISTOGRAM)
    net = Lambda(lambda m, x: torch.relu(m.conv(x)))
    prepared = prepare_pt2e(torch.export.export(net, image()).module(check_guards=False), quantizer)
    prepared(*image())
    return convert_pt2e(prepared)


def written(graph_module):
    return any(FLOAT_COMPARISON_KEY in (node.meta.get("custom") or {}) for node in graph_module.graph.nodes)


def test_ours_are_compared_with_the_float_net_and_stock_s_are_not():
    assert written(converted(SafeTOSAQuantizer))
    assert not written(converted(TOSAQuantizer))
    assert converted(TOSAQuantizer).code == converted(TOSAQuantizer).code


def test_uninstalling_gives_torchao_its_own_back_and_twice_is_once():
    SafeTOSAQuantizer(tosa("TOSA-1.0+INT"))
    wrapped = quantize_pt2e._disallow_eval_train
    watch_models(float_run.seen)
    assert quantize_pt2e._disallow_eval_train is wrapped
    try:
        INSTALLED.uninstall()
        assert not hasattr(quantize_pt2e._disallow_eval_train, "__wrapped__")
    finally:
        seams.install()
        watch_models(float_run.seen)
