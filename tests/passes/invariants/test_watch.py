"""What a broken invariant says and what becomes of it."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
from breaking import broken_by_mutation
from faults import visitor_raising
from graph_changes import graph_of
from lowering import PROFILES, codes_apart, lower_safely, quantize, tosa
from mutation_nets import inputs, quantised
from mutations import MUTATIONS
from small import Lambda, image
from spying import noted

from safe_arm._compat.upstream import PassResult
from safe_arm.acceleration.fuse_equal_placeholders import FuseEqualPlaceholdersPass
from safe_arm.acceleration.signatures import CachedSignature
from safe_arm.core.errors import InvariantError
from safe_arm.core.exceptions import Caught
from safe_arm.core.origins import attempted_on
from safe_arm.passes.invariants import INVARIANTS, Invariant, Watch

ADD = next(m for m in MUTATIONS if m.id == "add-scales-swapped")
PROFILE = "TOSA-1.0+INT"


def test_the_error_names_the_invariant_the_pass_and_those_before_it():
    text = str(broken_by_mutation(ADD.id))
    assert text.startswith("invariant 'domains-meet' broken by InsertRescaleInt32Pass: ")
    assert "(changed before it by: " in text
    assert "FoldAndAnnotateQParamsPass" in text.rpartition("changed before it by: ")[2]


@pytest.mark.filterwarnings("ignore::safe_arm.core.errors.DemotionWarning")
@pytest.mark.parametrize(
    ("also", "says"),
    [
        (nullcontext(), "InsertRescaleInt32Pass fails on it: InvariantError: invariant 'domains-meet' broken by"),
        (visitor_raising("tosa.ADD.default"), "InjectedError"),
    ],
    ids=["with the pass as its place", "what the backend itself dies of goes first"],
)
def test_it_is_demoted_like_a_crash(also, says):
    graph_module = quantised(ADD.net, PROFILE)
    with ADD.planted(), also:
        manager, partitioner = lower_safely(graph_module, inputs(), tosa(PROFILE))
    (verdict,) = partitioner.report.demoted
    assert verdict.op == "aten::add"
    assert says in verdict.reason
    assert codes_apart(manager, graph_module, inputs()) == 0
    assert partitioner.report.delegates


def test_names_are_words_and_each_has_its_own():
    assert len({invariant.name for invariant in INVARIANTS}) == len(INVARIANTS)


class Counting(Invariant):
    name = "counting"
    calls: list[str]

    def begin(self, program, graph_module):
        Counting.calls = []

    def after(self, pass_name, graph_module, program):
        Counting.calls.append((pass_name, program))

    def finish(self, graph_module):
        raise InvariantError("it is at the end")


class Pass:
    def __init__(self, modified):
        self.modified = modified

    def __call__(self, graph_module):
        return PassResult(graph_module, self.modified)


class PassWithProgram(Pass):
    exported_program = "before"


def test_only_what_a_pass_changed_is_checked():
    watch = Watch((Counting,), None, None)
    idle, busy = watch.watched([Pass(False), Pass(True)])
    assert idle("graph").modified is False
    assert busy("graph").modified is True
    assert Counting.calls == [("Pass", None)]
    with pytest.raises(InvariantError, match="'counting' broken by Pass: it is at the end"):
        watch.finish("graph")


def test_a_pass_still_gets_the_program_it_works_on():
    wrapped = PassWithProgram(True)
    (watched,) = Watch((Counting,), None, None).watched([wrapped])
    assert not hasattr(Watch((Counting,), None, None).watched([Pass(True)])[0], "exported_program")
    now = SimpleNamespace(graph_signature=CachedSignature([], []))
    watched.exported_program = now
    watched("graph")
    assert wrapped.exported_program is now
    assert Counting.calls == [("PassWithProgram", now)]


def test_an_error_of_a_pass_names_the_operator_that_the_pass_was_at():
    graph_module = graph_of(lambda m, x: torch.relu(torch.tanh(x)) + 1)
    last = list(graph_module.graph.nodes)[-2]

    def dies(graph_module):
        dies.node_debug_str = f"%{last.name} : [num_users=1] = call_function[target=aten.add]"
        raise ValueError("too much")

    dies.node_debug_str = None
    (watched,) = Watch((Counting,), None, None).watched([dies])
    result, accused = attempted_on(graph_module, watched)
    assert isinstance(result, Caught)
    assert accused[0] == last.name


def test_a_pass_behind_one_that_adds_constants_looks_up_in_tables_that_are_kept(monkeypatch):
    kinds = noted(
        monkeypatch, FuseEqualPlaceholdersPass, "call", lambda fusing, _: type(fusing.exported_program.graph_signature)
    )
    net, inputs = Lambda(lambda m, x: m.conv(x)), image()
    lower_safely(quantize(net, inputs, tosa(PROFILES[0])), inputs, tosa(PROFILES[0]), verify=False)
    assert set(kinds) == {CachedSignature}
