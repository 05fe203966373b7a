"""An observer that cannot take a value costs the operators on either side of it, not the calibration."""

import copy
import math
import pickle
from functools import partial

import pytest
import stubborn
import torch
from executorch.backends.arm.quantizer import TOSAQuantizer
from lowering import HISTOGRAM, lower_in_part, targets, tosa
from small import Lambda, image
from stubborn import Stubborn, converted, prepare, quantised_inputs, ramp
from torchao.quantization.pt2e import HistogramObserver, MinMaxObserver
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e

from safe_arm import SafeTOSAQuantizer
from safe_arm.core.island import is_marked_quantized
from safe_arm.quantizer.annotation.left_float import Ledger, is_left_float
from safe_arm.quantizer.calibration.calibration_watch import CalibrationWatch
from safe_arm.quantizer.calibration.guarded_observers import GuardedObserver, guard_observers

pytestmark = pytest.mark.filterwarnings("ignore:.*stay float")
quantizer_of = partial(stubborn.quantizer_of, config=HISTOGRAM)


def log_where(m, a):
    """The usual guard: the logarithm of negative values is NaN, and never looked at."""
    return torch.where(a > 0, torch.log(a), a)


NETS = {"log_where": log_where, "nan_to_num": lambda m, a: torch.nan_to_num(a * torch.tensor([float("nan")]))}


@pytest.mark.parametrize("name", NETS)
def test_stock_dies_while_calibrating(name):
    with pytest.raises(RuntimeError, match="is not finite"):
        converted(Stubborn(NETS[name]), quantizer_of(TOSAQuantizer), ramp())


@pytest.mark.parametrize("name", NETS)
def test_ours_is_exact(name, profile):
    quantizer = quantizer_of(profile=profile)
    graph_module = converted(Stubborn(NETS[name]), quantizer, ramp())
    assert {e.stage for e in quantizer.left_float} == {"observe"}
    assert name != "log_where" or {e.op for e in quantizer.left_float} >= {"aten::log", "aten::where"}
    assert quantised_inputs(graph_module, "conv2d")[-1] == 3
    lower_in_part(graph_module, tosa(profile), ramp(), (torch.rand(1, 4, 8, 8) * 2 - 1,))


def test_whole_units_stay_float_and_nothing_else():
    """``where`` reads the NaN as it is, so it is float too; its own output feeds a conv that stays quantised."""
    quantizer, net = quantizer_of(), Stubborn(log_where)
    with pytest.warns(UserWarning, match=r"log \(aten::log\).*the observer of log failed"):
        graph_module = converted(net, quantizer, ramp())
    assert converted(net, quantizer_of(), ramp()).code == graph_module.code, "twice equals once"
    nodes = {n.name: n for n in graph_module.graph.nodes}
    assert quantised_inputs(graph_module, "conv2d") == [3, 3]
    for name in ("log", "where"):
        assert is_left_float(nodes[name])
        assert not is_marked_quantized(nodes[name])
    assert is_marked_quantized(nodes["conv2d"])
    assert nodes["where"].args[1] is nodes["log"]
    reasons = {e.reason for e in quantizer.left_float}
    assert reasons == {"the observer of log failed: its values include NaN"}


def test_a_float_conv_keeps_its_float_weights():
    net = Stubborn(lambda m, a: a)
    with torch.no_grad():
        net.conv_a.weight[0] = float("nan")
    graph_module = converted(net, quantizer_of(), ramp())
    assert quantised_inputs(graph_module, "conv2d")[0] <= 1
    conv = next(n for n in graph_module.graph.nodes if n.name == "conv2d")
    assert conv.args[1].op == conv.args[2].op == "get_attr"


def test_near_miss_converts_as_stock_does():
    net = Stubborn(lambda m, a: torch.log(a.abs() + 1.0))
    ours, stock = (converted(net, quantizer_of(c), ramp()) for c in (SafeTOSAQuantizer, TOSAQuantizer))
    assert ours.code == stock.code
    assert torch.equal(ours(*ramp()), stock(*ramp()))


@pytest.mark.parametrize("is_qat", [False, True])
def test_copies_and_pickles_of_a_prepared_model_are_guarded_too(is_qat):
    quantizer = quantizer_of(is_qat=is_qat)
    prepared = copy.deepcopy(prepare(Stubborn(log_where), quantizer, ramp(), is_qat))
    with torch.no_grad():
        prepared(*ramp())
    assert targets(convert_pt2e(prepared))
    assert {"aten::log", "aten::where"} <= {e.op for e in quantizer.left_float}
    observer = GuardedObserver(HistogramObserver(), Ledger())
    observer(torch.linspace(-1, 1, 16))
    again = pickle.loads(pickle.dumps(observer))
    assert type(again) is type(observer)
    assert torch.equal(again.calculate_qparams()[0], observer.calculate_qparams()[0])


def test_an_observer_forgets_what_it_failed_on_and_goes_on_with_the_rest():
    shared, stock = HistogramObserver(), HistogramObserver()
    first, failing, last = guards = [GuardedObserver(shared, Ledger()) for _ in range(3)]
    good, bad = torch.linspace(-1, 1, 64), torch.full((4,), float("nan"))
    for guard, value in zip(guards, (good, bad, good * 2), strict=True):
        guard(value)
    stock(good)
    stock(good * 2)
    assert [hasattr(guard, "convert") for guard in (first, failing, last)] == [False, True, False]
    for ours, theirs in zip(first.calculate_qparams(), stock.calculate_qparams(), strict=True):
        assert torch.equal(ours, theirs)


def test_each_value_of_a_shared_domain_has_one_guard_of_its_own():
    a, b, user = (torch.fx.Graph().placeholder(name) for name in ("a", "b", "user"))
    shared, other = HistogramObserver(), HistogramObserver()
    observers = {a: shared, (a, user): shared, (b, user): shared, b: other, user: None}
    guard_observers(observers, Ledger())
    assert observers[a] is observers[a, user]
    assert observers[a] is not observers[b, user]
    assert observers[a].observer is observers[b, user].observer is shared
    assert observers[b].observer is other
    assert observers[user] is None


def test_nan_that_an_observer_takes_without_a_word_is_forgotten():
    guard = GuardedObserver(MinMaxObserver(), Ledger())
    guard(torch.linspace(-1, 1, 16))
    assert not hasattr(guard, "convert")
    guard(torch.tensor([float("nan"), 3.0]))
    assert guard.convert.keywords["why"] == "failed: its values include NaN"
    assert (guard.min_val, guard.max_val) == (-1, 1)


def test_an_observer_that_was_loaded_was_shown_its_samples():
    place, watch = torch.fx.Graph().placeholder("a"), CalibrationWatch()
    shown, loaded, fresh = ({place: MinMaxObserver()} for _ in range(3))
    for each in (shown, loaded, fresh):
        guard_observers(each, Ledger(), watch)
    shown[place](torch.linspace(-1, 1, 16))
    loaded[place].observer.load_state_dict(shown[place].observer.state_dict())
    assert [hasattr(each[place], "convert") for each in (shown, loaded, fresh)] == [False, False, True]


@pytest.mark.parametrize("is_qat", [True, False])
def test_a_batch_of_infinities_is_forgotten_in_training_once_another_came(is_qat):
    quantizer = quantizer_of(is_qat=is_qat)
    prepared = prepare(Stubborn(lambda m, a: a.relu()), quantizer, ramp(), is_qat)
    with torch.no_grad():
        for sample in (ramp()[0], ramp()[0] * math.inf, ramp()[0]):
            prepared(sample)
    convert_pt2e(prepared)
    assert bool(quantizer.left_float) != is_qat


def test_a_compiled_model_is_calibrated_as_one_that_is_run():
    """``torch.compile`` runs some guards within its own code; those beyond its limit of variants run as they are."""
    net, graphs = Lambda(lambda m, x: m.conv(x).relu()), []
    for run in (lambda prepared: prepared, partial(torch.compile, backend="eager")):
        quantizer = quantizer_of()
        prepared = prepare(net, quantizer, image())
        with torch._dynamo.config.patch(recompile_limit=1):
            run(prepared)(*image())
        graphs.append(convert_pt2e(prepared))
        assert not quantizer.left_float
    assert torch.equal(graphs[0](*image()), graphs[1](*image()))
    assert graphs[0].code == graphs[1].code
