"""The steps of the safe quantisers are told apart by their names."""

from safe_arm.quantizer import ordered_steps

STEPS = (
    *ordered_steps.BEFORE_PASSES,
    *ordered_steps.AFTER_PASSES,
    *ordered_steps.KEPT_FINE,
    *ordered_steps.AFTER_ANNOTATION,
)


def test_a_step_has_a_name_of_its_own():
    """What fails is left out by its name; constants are computed before stock's passes and behind them."""
    names = [step.__name__ for step in STEPS]
    twice = {name for name in names if names.count(name) > 1}
    assert twice == {"compute_constants"}


def test_what_is_costly_is_a_step_before_the_passes():
    assert set(ordered_steps.COSTLY_STEPS) <= set(ordered_steps.BEFORE_PASSES)
