"""What stock lowers wrongly without a word is found by measurement alone, knowing nothing of these bugs."""

import pytest
import torch
from lowering import RELEASE, by_stock, codes_apart, lower_safely, tosa
from silent_bugs import MIXED, SILENT_BUGS

from safe_arm.verification.model_server import ReferenceModelError

#: One of each kind, in one profile; the rest is for `make test-proof`.
SHORT = {"S1-conv2d-relu-cat", "S1-linear-relu-where"}


def cases():
    for bug in SILENT_BUGS:
        for profile in bug.profiles:
            short = profile == MIXED and (bug.issue != "S1" or bug.id in SHORT)
            yield pytest.param(bug, profile, id=f"{bug.id}-{profile}", marks=() if short else pytest.mark.proof)


@pytest.mark.skipif(RELEASE < (1, 5), reason="these are bugs of 1.5; before, some of them raise")
@pytest.mark.filterwarnings("ignore::safe_arm.core.errors.DemotionWarning")
@pytest.mark.parametrize(("bug", "profile"), cases())
def test_it_is_measured_and_demoted(bug, profile, by_measurement_alone):
    graph_module, inputs = bug.build(profile)
    stock = by_stock(graph_module, inputs, tosa(profile))
    if bug.issue == "S12":
        with pytest.raises(ReferenceModelError, match="TOSA_UNPREDICTABLE"):
            codes_apart(stock, graph_module, inputs)
    else:
        assert codes_apart(stock, graph_module, inputs) > 0
    options = {"corrections": (), "non_fuseable": "propagate", "verify": True}
    manager, partitioner = lower_safely(graph_module, inputs, tosa(profile), **options)
    demoted = partitioner.report.demoted
    assert {verdict.stage for verdict in demoted} == {"verify"}, "no check and no crash came first"
    assert {verdict.op for verdict in demoted} & set(bug.culprits)
    again = tuple(torch.roll(each, 1, 0) if each.dtype.is_floating_point else each for each in inputs)
    assert codes_apart(manager, graph_module, inputs, again) == 0
