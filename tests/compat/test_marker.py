"""The marker on a delegate's compile specs is read back, and is all that tells ours from stock's."""

from lowering import spec_list, tosa

from safe_arm import SafeArmPartitioner
from safe_arm._compat import marker
from safe_arm._compat.upstream import TOSAPartitioner

SPEC = tosa("TOSA-1.0+INT")
STOCK = spec_list(SPEC)


def test_the_names_are_read_back_and_none_are_no_absence():
    assert marker.names_in([*STOCK, marker.marker(("a", "b"))]) == ("a", "b")
    assert marker.names_in([marker.marker(()), *STOCK]) == ()
    assert marker.names_in(STOCK) is None


def test_stock_gets_its_own_specs():
    specs = marker.unmarked([STOCK[0], marker.marker(("a",)), *STOCK[1:]])
    assert [(spec.key, spec.value) for spec in specs] == [(spec.key, spec.value) for spec in STOCK]


def test_a_partitioner_is_ours_by_its_marker():
    assert marker.is_ours(SafeArmPartitioner(SPEC))
    assert not marker.is_ours(TOSAPartitioner(SPEC))
    assert not marker.is_ours(object())
