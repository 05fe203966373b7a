"""A lowered program of dynamic sizes is verified at the sizes of the samples, as long as the process knows them."""

import pytest
from dynamic import lowered, quantised
from lowering import RELEASE, tosa

from safe_arm import SafeArmPartitioner, verify
from safe_arm.verification import known_shapes
from safe_arm.verification.concrete_sizes import UnknownSizeError
from safe_arm.verification.known_shapes import remember

S, T = known_shapes.sympy.symbols("s0 s1", integer=True, positive=True)


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch):
    monkeypatch.setattr(known_shapes, "_known", type(known_shapes._known)())


@pytest.mark.skipif(RELEASE < (1, 5), reason="1.4 delegates nothing of a dynamic shape")
@pytest.mark.parametrize("name", ["conv-height", "conv-batch"])
@pytest.mark.parametrize("profile", ["TOSA-1.0+INT", "TOSA-1.0+FP"])
def test_a_dynamic_program_is_verified_by_the_process_that_lowered_it(name, profile):
    program, module, inputs = quantised(name, profile)
    manager = lowered(program, SafeArmPartitioner(tosa(profile)))
    report = verify(manager, inputs, reference=module)
    assert report.first_wrong is None
    assert all(gap.worst == 0 if gap.codes else gap.sqnr > 100 for gap in report.outputs)
    known_shapes._known.clear()  # As in another process.
    with pytest.raises(UnknownSizeError):
        verify(manager, inputs, reference=module)


def test_two_exports_to_the_same_bytes_have_their_own_symbols():
    remember(b"graph", [{"x": (S, 3)}])
    remember(b"graph", [{"x": (T, 3)}])
    assert known_shapes.known_shapes(b"graph", frozenset((T,))) == [{"x": (T, 3)}]
    assert known_shapes.known_shapes(b"graph", frozenset((S,))) == [{"x": (S, 3)}]
    assert known_shapes.known_shapes(b"other", frozenset((S,))) == ()


def test_of_static_delegates_nothing_is_kept_and_of_others_the_last(monkeypatch):
    monkeypatch.setattr(known_shapes, "_MOST", 2)
    remember(b"static", [{"x": (2, 3)}])
    assert not known_shapes._known
    for name in (b"a", b"b", b"c"):
        remember(name, [{"x": (S,)}])
    kept = [name for name in (b"a", b"b", b"c") if known_shapes.known_shapes(name, frozenset((S,)))]
    assert kept == [b"b", b"c"]
