"""What check recommends follows from what it measured."""

import pytest

from safe_arm.core.record import NodeVerdict, Reason, Report, Verification
from safe_arm.report.recommendation import recommendation

REASON = Reason("Not included in BaseTOSASupportList", "stock")
BEST = "export with --non-fuseable best: verified, 100 % of the MACs"


def report(delegated, rest=0, *, delegates=1, cycles=0, verified=True, macs=10):
    """Return a report of so many operators in so many delegates, each of so many MACs, and of so many fallbacks."""
    inside = [NodeVerdict(f"a{i}", "aten::conv", f"tag{i % delegates}", macs=macs) for i in range(delegated)]
    outside = [NodeVerdict(f"b{i}", "aten::conv", None, (REASON,), macs=macs) for i in range(rest)]
    tags = [f"tag{i}" for i in range(min(delegates, delegated))]
    proofs = tuple(Verification(tag, verified, "" if verified else "no", 10, 0.0, 6, 0.1) for tag in tags)
    return Report((*inside, *outside), 1, 1, verifications=proofs, cycles={tag: cycles for tag in tags if cycles})


@pytest.mark.parametrize(
    ("reject", "propagate", "said"),
    [
        (report(8, 2, delegates=2, cycles=785_000), report(10, cycles=1_360_000),
         f"{BEST} instead of 80.0 %, 1 delegate instead of 2, 1.36 M cycles instead of 1.57 M"),
        (report(8, 2, cycles=1_000), report(10, cycles=2_000),
         f"{BEST} instead of 80.0 %, 1 delegate, 2,000 cycles; with reject the smaller part takes 1,000"),
        (report(8, delegates=2), report(8), f"{BEST}, 1 delegate instead of 2"),
        (report(10), report(10), "as it is: verified, 100 % of the MACs, 1 delegate"),
        (report(10, 2), report(9, 3), "as it is: verified, 83.3 % of the MACs, 1 delegate"),
        (report(10, verified=False), report(10), "as it is: not verified, 100 % of the MACs, 1 delegate"),
        (report(9, 1, macs=0), report(9, 1, macs=0), "as it is: verified, 90.0 % of the operators, 1 delegate"),
        (report(0, 3), report(0, 3), "nothing can be delegated: the Arm backend cannot lower this operator; write it"),
        (report(0), report(0), "there is nothing to delegate"),
    ],
)  # fmt: skip
def test_it_follows_from_what_was_measured(reject, propagate, said):
    assert recommendation({"reject": reject, "propagate": propagate}, "reject").startswith(said)


def test_what_is_not_verified_is_propagated_by_name():
    both = {"reject": report(8, 2), "propagate": report(10, verified=False)}
    assert recommendation(both, "reject").startswith("export with --non-fuseable propagate: not verified, 100 %")
    both = {"reject": report(10), "propagate": report(8, 2)}
    assert recommendation(both, "propagate").startswith("export with --non-fuseable reject: verified, 100 %")


def test_who_asked_for_the_best_is_told_so():
    both = {"propagate": report(10), "reject": report(8, 2)}
    assert recommendation(both, "propagate") == "as it is: verified, 100 % of the MACs, 1 delegate"


def test_a_reason_that_is_a_sentence_of_stocks_ends_without_its_full_stop():
    verdict = NodeVerdict("a", "aten::conv", None, (Reason("Max supported rank is 5.", "stock"),), macs=1)
    both = dict.fromkeys(("reject", "propagate"), Report((verdict,), 0, 0))
    assert recommendation(both, "reject").startswith("nothing can be delegated: Max supported rank is 5; ")
