"""A program is decomposed once, by the same rules as in ExecuTorch's three rounds."""

import pytest
import torch
from operator_tables import AT_ONCE, overridden_again
from patches_of import patched
from small import Lambda, image
from spying import noted
from torch import _ops
from torch._export import utils
from torch._subclasses import fake_impls
from torch.export import ExportedProgram, exported_program

from safe_arm.acceleration import decompositions

TABLE = torch.export.default_decompositions()
#: The same, by which a linear stays whole.
WHOLE = {op: rule for op, rule in TABLE.items() if op != torch.ops.aten.linear.default}


@pytest.fixture
def traces(monkeypatch):
    """Counts real decompositions, with our wrapper round them."""
    traced = noted(monkeypatch, ExportedProgram, "run_decompositions")
    before = ExportedProgram.run_decompositions
    with patched(decompositions):
        yield traced
    assert ExportedProgram.run_decompositions is before


def program(forward=lambda m, x: torch.relu_(m.conv(x)) + m.linear(x)):
    return torch.export.export(Lambda(forward), image())


def three_rounds(exported):
    """What ExecuTorch does to a program: functionalise, decompose but for what is wanted whole, decompose."""
    return exported.run_decompositions({}).run_decompositions(dict(WHOLE)).run_decompositions(dict(WHOLE))


def test_stock_traces_three_times_and_ours_once_to_the_same_graph(traces):
    expected = three_rounds(program())
    assert len(traces) == 3
    traces.clear()
    with decompositions.merged():
        actual = three_rounds(program())
    assert len(traces) == 1
    assert str(actual.graph) == str(expected.graph)
    assert str(actual.graph_signature) == str(expected.graph_signature)
    assert "aten.linear.default" in str(actual.graph)
    assert "relu_" not in str(actual.graph)


def test_what_the_last_round_finds_is_decomposed(traces):
    with decompositions.merged():
        once = program().run_decompositions({}).run_decompositions(WHOLE)
        last = once.run_decompositions(TABLE)
    assert len(traces) == 2
    assert "aten.linear.default" not in str(last.graph)


def test_a_branch_s_operators_count(traces):
    def branches(m, x):
        return torch.cond(x.sum() > 0, lambda y: m.linear(y), lambda y: y * 2, (x,))

    with decompositions.merged():
        once = program(branches).run_decompositions({}).run_decompositions(WHOLE)
        assert once.run_decompositions(WHOLE) is once
        assert once.run_decompositions(TABLE) is not once


def test_if_one_trace_fails_two_are_made(monkeypatch):
    traced = []
    stock = ExportedProgram.run_decompositions

    def picky(self, table=None, **kwargs):
        traced.append(len(table))
        if len(traced) == 1:
            raise RuntimeError("not in one go")
        return stock(self, table, **kwargs)

    monkeypatch.setattr(ExportedProgram, "run_decompositions", picky)
    with patched(decompositions), decompositions.merged():
        actual = program().run_decompositions({}).run_decompositions(dict(TABLE))
    assert traced == [len(TABLE), 0, len(TABLE)]
    assert "aten.convolution.default" in str(actual.graph)


def test_outside_the_block_nothing_changes(traces):
    exported = program()
    with decompositions.merged():
        pass
    assert exported.run_decompositions({}) is not exported
    assert len(traces) == 1


def test_the_names_of_all_operators_are_asked_for_once(monkeypatch):
    asked = noted(monkeypatch, utils, "_materialize_cpp_cia_ops")
    collect = getattr(utils._collect_all_valid_cia_ops, "stock", utils._collect_all_valid_cia_ops)
    wanted = collect()
    assert len(asked) > 10
    with patched(decompositions):
        asked.clear()
        with decompositions.merged():
            assert [collect() for _ in range(3)] == [wanted] * 3
        assert len(asked) == 1
        assert collect() == wanted
        assert len(asked) > 10


def described(kernel):
    return getattr(kernel, "keywords", None) or getattr(kernel, "__qualname__", kernel)


def kernels_of(operators):
    return {op: {key: described(kernel) for key, kernel in op.py_kernels.items()} for op in operators}


def test_the_kernels_of_composite_operators_are_overridden_as_by_torch_and_put_back():
    stock = exported_program._override_composite_implicit_decomp
    stock = getattr(stock, "__wrapped__", stock)  # the tests may have put ours there
    composite, _ = exported_program._split_decomp_table_to_cia_and_python_decomp(dict(TABLE))
    assert len(composite) > 500
    with stock(composite):
        pass
    before, rules = kernels_of(composite), dict(fake_impls.op_implementations_dict)
    during = []
    for override in (AT_ONCE, overridden_again, stock):
        with override(composite):
            assert not any(op._dispatch_cache for op in composite)
            during.append((kernels_of(composite), set(fake_impls.op_implementations_dict)))
        assert kernels_of(composite) == before
        assert fake_impls.op_implementations_dict == rules
    assert during[0] == during[1] == during[2]
    assert during[0][0] != before


def test_an_error_puts_the_kernels_back():
    composite, _ = exported_program._split_decomp_table_to_cia_and_python_decomp(dict(TABLE))
    before = kernels_of(composite)
    for override in (AT_ONCE, overridden_again):
        with pytest.raises(ZeroDivisionError), override(composite):
            raise ZeroDivisionError
        assert kernels_of(composite) == before


def test_no_kernel_is_registered_by_itself_and_only_for_ours(monkeypatch, traces):
    registered = noted(monkeypatch, _ops.OperatorBase, "py_impl")
    with decompositions.merged():
        program().run_decompositions(dict(TABLE))
    assert len(registered) < 100
