"""Code comes when it is asked for, and is the code that would have been there."""

import inspect

import pytest
import torch
from executorch.backends.arm.quantizer import TOSAQuantizer
from lowering import PROFILES, by_one_call, min_max, tosa
from patches_of import patched
from small import Lambda, image
from spying import noted
from torch.fx import Graph, GraphModule

from safe_arm import SafeTOSAQuantizer
from safe_arm.acceleration import late_code
from safe_arm.quantizer.annotation import contained_annotation


@pytest.fixture
def written(monkeypatch):
    """Counts how often a graph is written out as code."""
    count, before = noted(monkeypatch, Graph, "python_code"), GraphModule.recompile
    with patched(late_code):
        yield count
    assert GraphModule.recompile is before


def traced():
    return torch.export.export(Lambda(lambda m, x: torch.relu(x) + 1), image()).module(check_guards=False)


def test_stock_writes_code_at_once_and_ours_when_it_is_called_once(written):
    module = traced()
    expected = module(*image())
    written.clear()
    module.recompile()
    assert len(written) == 1
    written.clear()
    with late_code.late():
        module.recompile()
        module.recompile()
        assert written == []
    assert torch.equal(module(*image()), expected)
    assert torch.equal(module(*image()), expected)
    assert len(written) == 1


def test_the_code_is_that_of_the_graph(written):
    module = traced()
    for node in module.graph.nodes:
        if node.target is torch.ops.aten.relu.default:
            node.target = torch.ops.aten.neg.default
    with late_code.late():
        module.recompile()
    assert "neg" in module.code
    assert torch.equal(module(*image()), -image()[0] + 1)


def test_what_is_read_off_it_is_there(written):
    plain, late = traced(), traced()
    with late_code.late():
        late.recompile()
    assert inspect.signature(late.forward) == inspect.signature(plain.forward)
    assert late._lineno_map == plain._lineno_map
    with late_code.late():
        late.recompile()
    assert str(late) == str(plain)
    assert type(late).forward.__code__.co_code == type(plain).forward.__code__.co_code


def test_parts_wait_too(written):
    inner = GraphModule(torch.nn.Module(), Graph())
    outer = GraphModule(torch.nn.Module(), Graph())
    outer.add_module("inner", inner)
    value = inner.graph.placeholder("x")
    inner.graph.output(inner.graph.call_function(torch.neg, (value,)))
    with late_code.late():
        outer.recompile()
    assert torch.equal(inner(torch.ones(2)), -torch.ones(2))


def test_code_put_off_is_there_after_uninstalling():
    with patched(late_code):
        module = traced()
        expected = module(*image())
        with late_code.late():
            module.recompile()
    assert torch.equal(module(*image()), expected)
    module.recompile()
    assert torch.equal(module(*image()), expected)


def quantised_by(quantizer_class):
    quantizer = quantizer_class(tosa(PROFILES[0])).set_global(min_max())
    return by_one_call(quantizer, traced(), [image()])


def test_quantising_by_one_call_writes_less_than_stock(written):
    quantised_by(TOSAQuantizer)
    stock = len(written)
    written.clear()
    quantised_by(SafeTOSAQuantizer)
    assert len(written) < stock / 2


@pytest.mark.parametrize("step", ["transform_for_annotation", "annotate"])
def test_a_graph_that_is_handed_back_has_its_code(step):
    model = traced()
    quantizer = SafeTOSAQuantizer(tosa(PROFILES[0])).set_global(min_max())
    model = getattr(quantizer, step)(model)
    assert inspect.isfunction(vars(type(model))["forward"])
    assert vars(model)["_code"] == model.graph.python_code("self").src


def planted_error(model, *more):
    model.recompile()
    raise RuntimeError("planted")


def test_a_graph_on_which_quantising_raises_has_its_code(monkeypatch):
    model = traced()
    expected = model(*image())
    quantizer = SafeTOSAQuantizer(tosa(PROFILES[0]))
    monkeypatch.setattr(contained_annotation, "annotate", planted_error)
    with pytest.raises(RuntimeError, match="planted"):
        quantizer.annotate(model)
    assert torch.equal(model(*image()), expected)
