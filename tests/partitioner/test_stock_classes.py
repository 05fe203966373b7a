"""A partitioner is of the stock class of its compile spec, and can be copied and pickled as stock's can."""

import copy
import pickle

import pytest
import torch
from executorch.backends.arm.ethosu import EthosUCompileSpec, EthosUPartitioner
from executorch.backends.arm.tosa.partitioner import TOSAPartitioner
from executorch.backends.arm.vgf import VgfCompileSpec, VgfPartitioner
from lowering import delegates, lower, quantize, tosa
from small import Lambda, image

from safe_arm import SafeArmPartitioner, UsageError, seams
from safe_arm.partitioner.stock_classes import own_class, stock_class, with_stock_class

SPECS = {
    "VGF": (lambda: VgfCompileSpec("TOSA-1.0+INT+FP"), VgfPartitioner),
    "Ethos-U": (lambda: EthosUCompileSpec(target="ethos-u55-128"), EthosUPartitioner),
    "TOSA": (lambda: tosa("TOSA-1.0+INT"), TOSAPartitioner),
}
EACH = pytest.mark.parametrize("name", SPECS)


class Mine(SafeArmPartitioner):
    """A user's subclass, by its name in a module, as ``pickle`` wants it."""


@EACH
def test_a_class_is_joined_once_with_that_of_the_spec(name):
    make, stock = SPECS[name]
    joined = with_stock_class(Mine, make())
    assert issubclass(joined, (Mine, stock))
    assert with_stock_class(Mine, make()) is with_stock_class(joined, make()) is joined
    assert own_class(joined) is own_class(Mine) is Mine
    assert stock_class(Mine) is None
    assert issubclass(stock_class(joined), stock)


def test_another_compile_spec_is_refused():
    with pytest.raises(UsageError, match="TosaCompileSpec"):
        with_stock_class(SafeArmPartitioner, "ethos-u55-128")


def pickled(partitioner):
    return pickle.loads(pickle.dumps(partitioner))


@pytest.mark.parametrize("cls", [SafeArmPartitioner, Mine])
@pytest.mark.parametrize(
    ("name", "again"),
    # Stock's for VGF cannot be pickled: it holds schemas of operators.
    [("TOSA", pickled), ("Ethos-U", pickled), ("TOSA", copy.deepcopy), ("VGF", copy.deepcopy)],
)
def test_it_is_copied_and_pickled_as_stock_s_is(name, again, cls):
    make, stock = SPECS[name]
    assert isinstance(again(stock(make())), stock)
    partitioner = cls(make(), non_fuseable="propagate")
    copied = again(partitioner)
    assert type(copied) is type(partitioner)
    assert copied.non_fuseable == "propagate"
    assert copied.delegation_spec == partitioner.delegation_spec


def test_one_that_was_used_lowers_to_the_same_bytes_where_nothing_is_patched_yet(monkeypatch):
    graph_module = quantize(Lambda(lambda m, x: torch.relu(m.conv(x))), image(), tosa("TOSA-1.0+INT"))
    partitioner = SafeArmPartitioner(tosa("TOSA-1.0+INT"))
    first = lower(graph_module, image(), partitioner)
    written = pickle.dumps(partitioner)
    installed = []
    monkeypatch.setattr(seams, "install", lambda real=seams.install: installed.append(real()))
    again = pickle.loads(written)
    assert len(installed) == 1
    assert again.report == partitioner.report
    assert delegates(lower(graph_module, image(), again)) == delegates(first)
