"""The pass manager of our delegates."""

import inspect
from functools import cache

import pytest
import torch.nn.functional as F
from executorch.backends.arm._passes import arm_pass_manager
from lowering import PROFILES, RELEASE, lower, quantize, tosa
from small import Lambda, image

from safe_arm import CORRECTIONS, SafeArmPartitioner, SafeArmPassManager, UsageError
from safe_arm._compat import upstream
from safe_arm.passes.manager import ACCELERATIONS, Correction, names, switches

#: Our passes around the fold of quantisers.
BEFORE = ["LeaveMixedOperatorsFloatPass", "SplitQuantisersPass", "RequantiseInputsPass", "RecordElementQParamsPass"]
BEHIND = ["PropagateActivationQParamsPass", "ClampToQuantRangePass"]


@cache
def quantised():
    return quantize(Lambda(lambda m, x: F.relu(m.conv(x))), image(), tosa(PROFILES[0]))


def pipeline(partitioner_of=SafeArmPartitioner, **kwargs):
    """The one pipeline that lowering a small net runs: its manager's class and its passes."""
    pipelines = []
    validate = upstream.ArmPassManager.validate_constraints_mandatory

    def spy(manager):
        pipelines.append((type(manager), list(manager.passes)))
        return validate(manager)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(upstream.ArmPassManager, "validate_constraints_mandatory", spy)
        lower(quantised(), image(), partitioner_of(tosa(PROFILES[0]), **kwargs))
    (found,) = pipelines
    return found


@cache
def ours():
    return pipeline(verify=False)


@cache
def stock():
    return pipeline(upstream.TOSAPartitioner)


def names_of(passes):
    return [type(each).__name__ for each in passes]


def of_our_own(passes):
    return [each for each in passes if type(each).__module__.startswith("safe_arm")]


def test_corrections_stand_where_the_tuple_puts_them():
    manager, passes = ours()
    order = names_of(passes)
    assert issubclass(manager, SafeArmPassManager)
    around_fusion = order.index("FuseQuantizedActivationPass")
    assert order[around_fusion - 1] == "CompleteHardtanhArgumentsPass"
    fold = order.index("FoldAndAnnotateQParamsPass")
    assert order[fold - 4 : fold] == BEFORE
    assert order[fold + 1 : fold + 3] == BEHIND
    swapped = {type(each).__name__: type(each).__module__ for each in of_our_own(passes)}
    assert swapped["FuseQuantizedActivationPass"] == "safe_arm.passes.fuse_quantized_activation"
    assert swapped["FuseConstantArgsPass"] == "safe_arm.passes.fuse_constant_args"


def test_without_our_passes_the_pipeline_is_stock_s():
    assert stock()[0] is upstream.ArmPassManager
    passes = ours()[1]
    replaced = {each.anchor for each in (*CORRECTIONS, *ACCELERATIONS) if each.instead}
    added = {*names_of(of_our_own(passes))} - replaced
    assert {*BEFORE, *BEHIND, "CompleteHardtanhArgumentsPass", "RoundToEvenPass", "RescaleWideSumsPass"} <= added
    assert [name for name in names_of(passes) if name not in added] == names_of(stock()[1])


def test_no_corrections_are_the_stock_passes():
    _, passes = pipeline(corrections=(), verify=False)
    assert names_of(passes) == names_of(stock()[1])
    assert {*names_of(of_our_own(passes))} <= {c.anchor for c in ACCELERATIONS}
    assert pipeline(corrections=(), preflight=False, verify=False)[0] is upstream.ArmPassManager


def test_a_subset_applies_alone():
    chosen = tuple(c for c in CORRECTIONS if c.name == "hardtanh-defaults")
    mine = names_of(of_our_own(pipeline(corrections=chosen, verify=False)[1]))
    fast = {correction.anchor for correction in ACCELERATIONS}
    assert [name for name in mine if name not in fast] == ["CompleteHardtanhArgumentsPass"]


def test_an_acceleration_takes_what_a_correction_put_in_a_pass_s_place():
    upwards = [each for each in ours()[1] if type(each).__name__ == "PropagateViewCopyPermuteUpPass"]
    assert upwards
    assert all("_retrace" in vars(each) for each in upwards)
    assert all(type(each).__module__ == "safe_arm.passes.propagate_view_copy_permute_up" for each in upwards)


def test_a_name_stands_for_its_correction_and_names_are_in_pipeline_order():
    assert names(tuple(reversed(CORRECTIONS))) == names(CORRECTIONS)
    assert names(("wide-sums", "hardtanh-defaults")) == ("hardtanh-defaults", "wide-sums")
    partitioner = SafeArmPartitioner(tosa(PROFILES[0]), corrections=("honest-fusion",), verify=False)
    assert partitioner.corrections == ("honest-fusion",)
    with pytest.raises(
        UsageError, match="correction 'honest-fusoin' is not known; accepted: hardtanh-defaults, honest-fusion"
    ):
        SafeArmPartitioner(tosa(PROFILES[0]), corrections=("honest-fusoin",))


def test_a_program_lists_corrections_only_if_some_are_off():
    every = names(CORRECTIONS)
    assert switches(every) == ["all"]
    assert switches(every[1:]) == [*every[1:]]
    assert switches(()) == []


def test_a_correction_of_nobody_s_is_refused():
    with pytest.raises(UsageError, match="hardtanh-defaults, honest-fusion, qparam-propagator"):
        SafeArmPartitioner(tosa(PROFILES[0]), corrections=(Correction("mine", "", "RemoveNoopPass"),))


@pytest.mark.skipif(not hasattr(upstream.ArmPassManager, "_apply_pass_insertions"), reason="no insertions before 1.3")
def test_a_user_s_insertion_finds_the_pass_we_swapped():
    from safe_arm.passes.clamp_to_quant_range import ClampToQuantRangePass

    class Inserted(ClampToQuantRangePass):
        pass

    before = dict(arm_pass_manager._registered_pass_insertions)
    arm_pass_manager.register_pass_insertions_before(upstream.FuseConstantArgsPass, [Inserted()])
    try:
        order = names_of(pipeline(verify=False)[1])
    finally:
        arm_pass_manager._registered_pass_insertions.clear()
        arm_pass_manager._registered_pass_insertions.update(before)
    assert order[order.index("FuseConstantArgsPass") - 1] == "Inserted"


def test_signature_and_corrections_of_the_partitioner_are_readable():
    signature = str(inspect.signature(SafeArmPartitioner))
    assert "= CORRECTIONS," in signature
    assert "lambda" not in signature
    listed = str(CORRECTIONS).strip("()").split(", ")
    assert "<correction hardtanh-defaults at FuseQuantizedActivationPass>" in listed
    assert len(set(listed)) == len(listed) == len(CORRECTIONS)


def test_every_correction_is_anchored_to_a_pass_of_the_backend():
    later = {"CanonicalizeViewCopyPermutePass"} if RELEASE < (1, 5) else set()
    known = later | {name for name, value in vars(arm_pass_manager).items() if inspect.isclass(value)}
    assert {correction.anchor for correction in (*CORRECTIONS, *ACCELERATIONS)} - known == set()
