"""A batch norm is folded into what is before it only where that changes nothing else."""

import pytest
import torch
import torch.nn.functional as F
from executorch.backends.arm.quantizer import TOSAQuantizer
from graph_changes import changes
from lowering import PROFILES, lower_exactly, tosa
from small import Built
from stubborn import converted, exported, prepare, quantizer_of
from torch import nn

from safe_arm import SafeTOSAQuantizer
from safe_arm._compat.batch_norms import stock_folds
from safe_arm.quantizer.training.norm_folding import fold

X = torch.randn(1, 3, 8, 8, generator=torch.Generator().manual_seed(5))


def norm(channels, kind=nn.BatchNorm2d, seed=1):
    generator, made = torch.Generator().manual_seed(seed), kind(channels, eps=0.1)
    with torch.no_grad():
        for tensor, low, high in ((made.weight, 1, 3), (made.bias, -1, 1), (made.running_mean, -1, 1)):
            tensor.copy_(torch.rand(channels, generator=generator) * (high - low) + low)
    return made


def parts(rule, bias=True):
    torch.manual_seed(0)
    layers = {"conv": nn.Conv2d(3, 4, 3, padding=1, bias=bias), "other": nn.Conv2d(3, 4, 1)}
    layers |= {"up": nn.ConvTranspose2d(4, 4, 2, groups=2), "linear": nn.Linear(8, 4), "flat": norm(4, nn.BatchNorm1d)}
    norms = {"norm": norm(4), "second": norm(4, seed=2), "statless": nn.BatchNorm2d(4, track_running_stats=False)}
    return Built(rule, **layers, **norms).eval()


def read_by(y, *readers):
    """The sum of what several make of a value."""
    return sum(reader(y) for reader in readers)


WRONG = {
    "value used twice": lambda m, x: read_by(m.conv(x), m.norm, nn.Identity()),
    "two norms of one value": lambda m, x: read_by(m.conv(x), m.norm, m.second),
    "linear used twice": lambda m, x: read_by(m.linear(x.reshape(-1, 8)), m.flat, nn.Identity()),
    "weights used with and without a norm": lambda m, x: m.norm(m.conv(x)) + m.conv(x.flip(3)),
    "weights used with two norms": lambda m, x: m.norm(m.conv(x)) + m.second(m.conv(x.flip(3))),
    "weights used elsewhere": lambda m, x: m.norm(m.conv(x)) * m.conv.weight.sum(),
    "a bias of two": lambda m, x: m.norm(m.conv(x)) + F.conv2d(x, m.other.weight, m.conv.bias),
    "a norm of a norm": lambda m, x: m.second(m.norm(m.conv(x))),
    "a whole number for epsilon": lambda m, x: read_by(
        m.conv(x), lambda y: F.batch_norm(y, m.norm.running_mean, m.norm.running_var, eps=1), nn.Identity()
    ),
    "a norm twice in a row": lambda m, x: m.norm(m.norm(m.conv(x))),
}
DIES = {
    "transposed in groups": (lambda m, x: m.norm(m.up(m.conv(x))), "must match the size"),
    "computed weights": (lambda m, x: m.norm(F.conv2d(x, m.conv.weight * 2)), "Expected get_attr node"),
    "computed statistics": (
        lambda m, x: F.batch_norm(m.conv(x), m.norm.running_mean * 2, m.norm.running_var, m.norm.weight, m.norm.bias),
        "Expected get_attr node",
    ),
    "computed weights of the norm": (
        lambda m, x: F.batch_norm(m.conv(x), m.norm.running_mean, m.norm.running_var, m.norm.weight * 2),
        "Expected get_attr node",
    ),
    "no statistics": (lambda m, x: m.statless(m.conv(x)), "unsupported operand"),
}
RIGHT = {
    "one norm": lambda m, x: m.norm(m.conv(x)),
    "a layer with its norm, twice": lambda m, x: m.norm(m.conv(x)) + m.norm(m.conv(x.flip(3))),
    "a linear layer": lambda m, x: m.flat(m.linear(x.reshape(-1, 8))),
}


def folded(net):
    """The net as torchao folds it for a stock quantiser."""
    model = exported(net, (X,))
    for stock in stock_folds():
        stock(model)
    return model


def prepared(net, quantizer_class):
    """The net as it is folded, observed and not yet rounded."""
    return prepare(net, quantizer_of(quantizer_class), (X,))


def nets(rules):
    return [pytest.param(parts(rule), id=name) for name, rule in rules.items()]


SIAMESE = pytest.param(parts(RIGHT["a layer with its norm, twice"], bias=False), id="two layers without bias")


@pytest.mark.parametrize("net", [*nets(WRONG), SIAMESE])
def test_stock_changes_what_the_net_computes(net):
    apart = (folded(net)(X) - net(X)).abs().max() / net(X).abs().max()
    assert apart > 0.1


@pytest.mark.parametrize(("rule", "message"), DIES.values(), ids=DIES)
def test_stock_dies(rule, message):
    with pytest.raises((RuntimeError, ValueError, TypeError), match=message):
        folded(parts(rule))


@pytest.mark.parametrize("net", [*nets(WRONG), *nets({name: rule for name, (rule, _) in DIES.items()}), SIAMESE])
def test_ours_folds_the_net_that_it_was_given_and_twice_equals_once(net):
    model = exported(net, (X,))
    fold(model)
    torch.testing.assert_close(model(X), net(X), rtol=1e-5, atol=1e-4)
    assert not changes(fold, model)


def test_a_norm_behind_no_layer_is_left_alone():
    assert not changes(fold, exported(parts(lambda m, x: m.norm(torch.relu(m.conv(x)))), (X,)))


@pytest.mark.parametrize(
    "name", ["value used twice", "weights used with two norms", "a norm of a norm", "linear used twice"]
)
@pytest.mark.filterwarnings("ignore:.*single sample")
def test_it_is_delegated_exactly(name):
    graph_module = converted(parts(WRONG[name]), quantizer_of(), (X,))
    partitioner = lower_exactly(graph_module, tosa(PROFILES[0]), (X,))
    assert len(partitioner.report.delegates) == 1


@pytest.mark.parametrize("net", nets(RIGHT))
def test_where_stock_is_right_the_graph_is_stock_s(net):
    ours, stock = prepared(net, SafeTOSAQuantizer), prepared(net, TOSAQuantizer)
    assert ours.code == stock.code
    assert all(map(torch.equal, ours.state_dict().values(), stock.state_dict().values()))


def test_a_stock_quantizer_gets_stock_s_folding_beside_ours():
    net = parts(WRONG["weights used elsewhere"])
    torch.testing.assert_close(prepared(net, SafeTOSAQuantizer)(X), net(X), rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(prepared(net, TOSAQuantizer)(X), folded(net)(X), rtol=1e-5, atol=1e-4)


def test_weights_that_two_layers_read_before_one_norm_stay_one():
    model = exported(parts(RIGHT["a layer with its norm, twice"]), (X,))
    fold(model)
    layers = model.graph.find_nodes(op="call_function", target=torch.ops.aten.conv2d.default)
    assert len({layer.args[1].target for layer in layers}) == 1
