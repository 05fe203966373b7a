"""An index that is an input or is computed counts from the end of a dimension where it is negative, as in PyTorch."""

import pytest
import torch
from executorch.backends.arm.quantizer import TOSAQuantizer
from executorch.backends.arm.tosa.specification import TosaLoweringContext, TosaSpecification
from folding import changed_once, edge_of, is_untouched
from lowering import (
    PROFILES,
    RELEASE,
    by_stock,
    codes_apart,
    corrected,
    lower_exactly,
    lower_program,
    min_max,
    quantize,
    tosa,
)
from small import Lambda

from safe_arm import SafeArmPartitioner, SafeTOSAQuantizer
from safe_arm.core.errors import DemotionWarning
from safe_arm.passes.count_indices import CountIndicesPass
from safe_arm.verification.model_server import ReferenceModelError

X = torch.rand(6, 6, 4, generator=torch.Generator().manual_seed(1)) * 2 - 1
VALUES = torch.rand(3, 6, 4, generator=torch.Generator().manual_seed(2)) * 2 - 1
FROM_START = (X, torch.tensor([1, 5, 3], dtype=torch.int32), VALUES)
FROM_END = (X, torch.tensor([-1, 0, -3], dtype=torch.int32), VALUES)


def rows(x, k, v):
    return (x + 1)[k] * 2


def written_rows(x, k, v):
    y = x * 1.0
    y[k] = v
    return y * 2


def written_columns(x, k, v):
    y = x * 1.0
    y[:, k] = v.transpose(0, 1)
    return y * 2


INDEXED = {
    "rows": rows,
    "rows of two dimensions": lambda x, k, v: (x + 1)[k.reshape(3, 1)] * 2,
    "of two dimensions": lambda x, k, v: (x + 1)[k, k + 1 - 1] * 2,
    "written rows": written_rows,
    "written columns": written_columns,
}
UNTOUCHED = {
    "a constant": lambda x, k, v: x[torch.tensor([0, -1])],
    "a constant that is computed": lambda x, k, v: x[torch.arange(3) - 1],
    "the place of a maximum": lambda x, k, v: x[x[:, 0].argmax(-1)],
    "the place of a minimum, narrowed": lambda x, k, v: x[x[:, 0].argmin(-1).int().reshape(2, 3)],
    "whether, as a number": lambda x, k, v: x[(v[:, 0, 0] > 0).long()],
    "selected": lambda x, k, v: x.index_select(0, k),
}


def quantised(function, quantizer_class):
    net = Lambda(lambda m, *inputs: function(*inputs))
    return quantize(net, FROM_START, tosa(PROFILES[0]), config=min_max(), quantizer_class=quantizer_class)


def counting(program):
    """The pass, for a program."""
    return lambda: CountIndicesPass(program)


def test_stock_leaves_a_negative_index_undefined():
    graph_module = quantised(rows, TOSAQuantizer)
    manager = by_stock(graph_module, FROM_START, tosa(PROFILES[0]))
    with pytest.raises(ReferenceModelError, match="exceed valid range"):
        codes_apart(manager, graph_module, FROM_END)


@pytest.mark.parametrize("quantizer_class", [TOSAQuantizer, SafeTOSAQuantizer])
@pytest.mark.parametrize("name", INDEXED)
def test_ours_is_exact_whatever_the_index(name, quantizer_class):
    graph_module = quantised(INDEXED[name], quantizer_class)
    lower_exactly(graph_module, tosa(PROFILES[0]), FROM_START, FROM_END)


def test_so_is_a_float_delegate_and_the_report_says_so():
    graph_module = torch.export.export(Lambda(lambda m, *inputs: rows(*inputs)), FROM_START).module(check_guards=False)
    (given,) = corrected("counted-indices", "S50", graph_module, FROM_END, tosa("TOSA-1.0+FP"))
    assert torch.equal(given, rows(*FROM_END))


@pytest.mark.parametrize("profile", ["TOSA-1.0+INT", "TOSA-1.0+FP"])
@pytest.mark.parametrize("name", INDEXED)
def test_twice_equals_once(name, profile):
    program = edge_of(INDEXED[name], inputs=FROM_START)
    with TosaLoweringContext(TosaSpecification.create_from_string(profile)):
        assert {"lt", "where"} <= {*changed_once(counting(program), program.graph_module)}


@pytest.mark.parametrize("name", UNTOUCHED)
def test_what_is_constant_or_never_negative_is_left_alone(name):
    program = edge_of(UNTOUCHED[name], inputs=FROM_START)
    assert is_untouched(counting(program), program.graph_module)


@pytest.mark.skipif(RELEASE < (1, 5), reason="1.4 delegates nothing of a dynamic shape")
def test_a_dynamic_size_has_nothing_to_count_from():
    net = Lambda(lambda m, x, k: (x + 1)[k] * 2)
    rows = torch.export.Dim("rows", min=6, max=32)
    program = torch.export.export(net, FROM_START[:2], dynamic_shapes=({0: rows}, (None,)))
    partitioner = SafeArmPartitioner(tosa("TOSA-1.1+FP+shape"))
    with pytest.warns(DemotionWarning, match="has no fixed size to count from"):
        lower_program(program, partitioner)
    assert [each.op for each in partitioner.report.fallbacks] == ["aten::index"]


def test_floats_count_no_more_places_than_they_tell_apart():
    table = torch.zeros(1, 1).expand(2**24 + 1, 1)
    program = edge_of(lambda x, k: x[k], inputs=(table, FROM_START[1]))
    context = TosaLoweringContext(TosaSpecification.create_from_string("TOSA-1.0+FP"))
    with context, pytest.raises(ValueError, match="cannot count all 16777217 places"):
        CountIndicesPass(program).call(program.graph_module)
