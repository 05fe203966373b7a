"""A session takes one program from the plan to the report and hands on values: another session changes none of them."""

import dataclasses

import faults
import torch
from executorch.backends.arm.tosa.partitioner import TOSAPartitioner
from lowering import PROFILES, tosa
from prepared import prepared

from safe_arm._compat.extraction import tag_of
from safe_arm.core.island import call_functions
from safe_arm.core.record import Subject
from safe_arm.partitioner.session import Observer, Rules, Session
from safe_arm.safe_partitioner import RefusedByPlan

RULES = Rules("reject", (), False, Subject("tosa", PROFILES[0], "reject"))


def tanh_sigmoid(m, x):
    return torch.sigmoid(torch.tanh(x))


def session(program=None, method="forward", **rules):
    stock = TOSAPartitioner(tosa(PROFILES[0]), [RefusedByPlan()]).partition
    return Session(program or prepared(tanh_sigmoid).program(), stock, dataclasses.replace(RULES, **rules), method)


def test_the_outcome_is_the_tagged_program_its_report_and_what_ships():
    program = prepared(tanh_sigmoid).program()
    outcome = session(program, "encode").run()
    assert outcome.proposal.program is program
    assert outcome.demotions == ()
    assert [cut.tag for cut, _ in outcome.shipped] == list(outcome.proposal.specs) == ["tag0"]
    assert outcome.report.trials == 1
    assert {verdict.method for verdict in outcome.report.verdicts} == {"encode"}


def test_another_session_leaves_an_outcome_as_it_is():
    first = session().run()
    before = first.report.to_dict()
    with faults.pass_raising_for("aten::tanh"):
        second = session().run()
    assert len(second.demotions) == 1
    assert (first.demotions, first.report.to_dict()) == ((), before)


def test_without_preflight_nothing_is_tried_and_nothing_ships_ahead():
    with faults.pass_raising_for("aten::tanh"):
        outcome = session(preflight=False).run()
    assert (outcome.report.trials, outcome.shipped, outcome.demotions) == (0, (), ())
    assert list(outcome.proposal.specs) == ["tag0"]


def test_an_observer_is_told_and_its_script_is_in_the_report(tmp_path):
    class Told(Observer):
        def __init__(self):
            self.of = []

        def demoted(self, demotion, proposal, trials):
            self.of.append((demotion, {tag_of(node) for node in call_functions(proposal.program.graph_module)}))
            return tmp_path / "tanh.py"

    observer = Told()
    with faults.pass_raising_for("aten::tanh"):
        outcome = session(observer=observer).run()
    assert [demotion for demotion, _ in observer.of] == list(outcome.demotions)
    assert "tag0" in observer.of[0][1], "the proposal that failed is what it is shown"
    (verdict,) = outcome.report.demoted
    assert verdict.repro == str(tmp_path / "tanh.py")
