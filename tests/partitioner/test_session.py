"""A session takes one program from the plan to the report and hands on values: another session changes none of them."""

import dataclasses

import faults
import pytest
import torch
from executorch.backends.arm.tosa.partitioner import TOSAPartitioner
from lowering import PROFILES, codes_apart, delegates, tosa
from mutations import MUTATIONS
from prepared import prepared
from small import But, Lambda, image

from safe_arm._compat.extraction import tag_of
from safe_arm.core.island import call_functions
from safe_arm.core.record import Subject
from safe_arm.partitioner.session import Observer, Rules, Session
from safe_arm.safe_partitioner import RefusedByPlan

pytestmark = pytest.mark.filterwarnings("ignore::safe_arm.core.errors.DemotionWarning")
RULES = Rules("reject", (), False, Subject("tosa", PROFILES[0], "reject"))
TANH = Lambda(lambda m, x: torch.sigmoid(torch.tanh(x)))


def session(program=None, method="forward", **rules):
    stock = TOSAPartitioner(tosa(PROFILES[0]), [RefusedByPlan()]).partition
    return Session(program or prepared(TANH).program(), stock, dataclasses.replace(RULES, **rules), method)


def test_the_outcome_is_the_tagged_program_its_report_and_what_ships():
    program = prepared(TANH).program()
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


def test_what_upstream_lowers_wrong_is_refused_unless_the_user_asked_for_no_corrections():
    program = prepared(lambda m, x: (m.conv(x), torch.relu(x[:, :0]) + 1)).program()
    runs = [session(program, corrections=names, preflight=False).run() for names in ((), ("whole-joins",))]
    assert ["E1" in {verdict.issue for verdict in each.report.fallbacks} for each in runs] == [False, True]


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


def two_islands(m, x):
    """One in a delegate of 9,216 MACs that cannot be cropped, one in a delegate of 2,304."""
    first = torch.cat((torch.relu(m.conv(x)), x), 1)
    between = torch.tanh(first - first.mean((2, 3), keepdim=True))[:, :4]
    small = torch.max_pool2d(between, 2)
    return torch.cat((torch.relu(m.conv_b(small)), small), 1)


#: The budget of verification, and what best makes of the two islands; by what it makes of them.
BUDGETS = {
    "both proven": (None, ["propagated", "propagated"]),
    "one proven": (3_000, ["rejected", "propagated"]),
    "none proven": (10, ["rejected", "rejected"]),
}


def lowered_under(policy, net, **options):
    net = prepared(net)
    # Its tanh cuts the net in two.
    partitioner = net.partitioner(verify=True, non_fuseable=policy, additional_checks=[But("tanh")], **options)
    return net.lowered(partitioner), net.graph_module, partitioner.report


@pytest.mark.parametrize("case", BUDGETS)
def test_best_propagates_where_it_is_proven_and_rejects_elsewhere(case):
    budget, expected = BUDGETS[case]
    manager, graph_module, report = lowered_under("best", two_islands, verify_budget=budget)
    assert [v.island for v in report.verdicts if v.island] == expected
    assert codes_apart(manager, graph_module, image(), image(1, 2.0)) == 0
    rejected = [v for v in report.fallbacks if v.island == "rejected"]
    assert [(v.issue, v.stage, v.op) for v in rejected] == [("S1", "check", "aten::relu")] * expected.count("rejected")
    for verdict in rejected:
        assert verdict.reason.startswith("the activation cannot be fused, and the delegate is not verified, ")
    assert all(each.verified for each in report.verifications)


def test_best_ships_what_propagate_ships_where_all_is_proven():
    best = lowered_under("best", two_islands)
    assert delegates(best[0]) == delegates(lowered_under("propagate", two_islands)[0])
    assert best[2].subject.non_fuseable == "best"


@pytest.mark.usefixtures("by_measurement_alone")
def test_best_takes_out_what_is_measured_wrong():
    dropped = next(each for each in MUTATIONS if each.id == "relu-dropped")
    with dropped.planted():
        manager, graph_module, report = lowered_under("best", two_islands)
    assert [v.island for v in report.verdicts if v.island] == ["rejected", "rejected"]
    assert {v.stage for v in report.fallbacks if v.island} == {"verify"}
    assert codes_apart(manager, graph_module, image()) == 0


def test_best_is_reject_where_nothing_can_be_proven():
    """No tosa-tools: the partitioner warns, and its rules have no prover."""
    program = prepared(two_islands).program()
    outcome = session(program, policy="best").run()
    assert [v.island for v in outcome.report.verdicts if v.island] == ["rejected", "rejected"]
    assert outcome.report.propagate_would_keep == 2
