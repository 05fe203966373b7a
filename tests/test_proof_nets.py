"""No false alarm: what is right is verified, in codes, and nothing is demoted."""

import pytest
from lowering import lower_safely, tosa
from proving import quantized

from benchmarks.proof_nets import NETS

PROFILES = {
    "INT-int8": "TOSA-1.0+INT",
    "INT+FP-int8": "TOSA-1.0+INT+FP",
    "INT-a16w8": "TOSA-1.0+INT+int16",
    "INT+FP-a16w8": "TOSA-1.0+INT+FP+int16",
}
#: Short enough for `make test`.
SHORT = {("lstm", "INT+FP-int8"), ("mtcnn-rnet", "INT-int8")}


def cases():
    for name in NETS:
        for profile in PROFILES:
            marks = () if (name, profile) in SHORT else pytest.mark.proof
            yield pytest.param(name, profile, id=f"{name}-{profile}", marks=marks)


@pytest.mark.parametrize(("name", "profile"), cases())
def test_every_delegate_is_verified_and_nothing_demoted(name, profile):
    net, inputs = NETS[name]()
    wide = profile.endswith("a16w8")
    graph_module = quantized(net, inputs, PROFILES[profile], wide=wide)
    _, partitioner = lower_safely(graph_module, inputs, tosa(PROFILES[profile]), non_fuseable="propagate", verify=True)
    report = partitioner.report
    assert report.demoted == ()
    assert report.verifications
    assert all(each.verified for each in report.verifications), report.verifications
    assert wide or {each.worst for each in report.verifications} == {0}, "int8 is exact"
