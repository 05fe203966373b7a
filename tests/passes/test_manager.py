"""The pass manager of our delegates."""

import pytest
import torch.nn.functional as F
from lowering import PROFILES, lower, quantize, tosa
from small import Lambda, image

from safe_arm import CORRECTIONS, SafeArmPartitioner, SafeArmPassManager, UsageError
from safe_arm._compat import upstream
from safe_arm.passes.manager import ACCELERATIONS, Correction, manager_of, names


def pass_names(monkeypatch, partitioner_of):
    """The pipelines that lowering a small net runs, as class objects."""
    pipelines = []
    validate = upstream.ArmPassManager.validate_constraints_mandatory

    def spy(manager):
        pipelines.append((type(manager), [type(p) for p in manager.passes]))
        return validate(manager)

    monkeypatch.setattr(upstream.ArmPassManager, "validate_constraints_mandatory", spy)
    net, inputs = Lambda(lambda m, x: F.relu(m.conv(x))), image()
    lower(quantize(net, inputs, tosa(PROFILES[0])), inputs, partitioner_of(tosa(PROFILES[0])))
    return pipelines


def test_corrections_stand_where_the_tuple_puts_them(monkeypatch):
    ((manager, passes),) = pass_names(monkeypatch, SafeArmPartitioner)
    order = [p.__name__ for p in passes]
    assert issubclass(manager, SafeArmPassManager)
    around_fusion = order.index("FuseQuantizedActivationPass")
    assert order[around_fusion - 1] == "CompleteHardtanhArgumentsPass"
    fold = order.index("FoldAndAnnotateQParamsPass")
    assert order[fold - 4 : fold + 3] == [
        "LeaveMixedOperatorsFloatPass",
        "SplitQuantisersPass",
        "RequantiseInputsPass",
        "RecordElementQParamsPass",
        "FoldAndAnnotateQParamsPass",
        "PropagateActivationQParamsPass",
        "ClampToQuantRangePass",
    ]
    swapped = {p.__name__: p.__module__ for p in passes if p.__module__.startswith("safe_arm")}
    assert swapped["FuseQuantizedActivationPass"] == "safe_arm.passes.fuse_quantized_activation"
    assert swapped["FuseConstantArgsPass"] == "safe_arm.passes.fuse_constant_args"


def test_without_our_passes_the_pipeline_is_stock_s(monkeypatch):
    ((_, ours),) = pass_names(monkeypatch, SafeArmPartitioner)
    ((manager, stock),) = pass_names(monkeypatch, upstream.TOSAPartitioner)
    assert manager is upstream.ArmPassManager
    added = {
        "CompleteHardtanhArgumentsPass",
        "DefinePowersPass",
        "KeepMeansFloatPass",
        "RoundToEvenPass",
        "LeaveMixedOperatorsFloatPass",
        "SplitQuantisersPass",
        "RequantiseInputsPass",
        "RecordElementQParamsPass",
        "PropagateActivationQParamsPass",
        "ClampToQuantRangePass",
        "CompareExactlyPass",
        "RescaleWideSumsPass",
    }
    assert [p.__name__ for p in ours if p.__name__ not in added] == [p.__name__ for p in stock]


def test_no_corrections_are_the_stock_passes(monkeypatch):
    ((_, ours),) = pass_names(monkeypatch, lambda spec: SafeArmPartitioner(spec, corrections=()))
    ((_, stock),) = pass_names(monkeypatch, upstream.TOSAPartitioner)
    assert [p.__name__ for p in ours] == [p.__name__ for p in stock]
    assert {p.__name__ for p in ours if p.__module__.startswith("safe_arm")} <= {c.anchor for c in ACCELERATIONS}


def test_no_corrections_and_no_preflight_is_the_stock_manager(monkeypatch):
    ((manager, _),) = pass_names(monkeypatch, lambda spec: SafeArmPartitioner(spec, corrections=(), preflight=False))
    assert manager is upstream.ArmPassManager


def test_a_subset_applies_alone(monkeypatch):
    chosen = tuple(c for c in CORRECTIONS if c.name == "hardtanh-defaults")
    ((_, passes),) = pass_names(monkeypatch, lambda spec: SafeArmPartitioner(spec, corrections=chosen))
    ours = [p.__name__ for p in passes if p.__module__.startswith("safe_arm")]
    fast = {correction.anchor for correction in ACCELERATIONS}
    assert [name for name in ours if name not in fast] == ["CompleteHardtanhArgumentsPass"]


def test_an_acceleration_takes_what_a_correction_put_in_a_pass_s_place(monkeypatch):
    added, add = [], upstream.ArmPassManager.add_pass

    def spy(manager, each):
        added.append(each)
        add(manager, each)

    monkeypatch.setattr(upstream.ArmPassManager, "add_pass", spy)
    net, inputs = Lambda(lambda m, x: F.relu(m.conv(x))), image()
    lower(quantize(net, inputs, tosa(PROFILES[0])), inputs, SafeArmPartitioner(tosa(PROFILES[0])))
    upwards = [each for each in added if type(each).__name__ == "PropagateViewCopyPermuteUpPass"]
    assert upwards
    assert all({"_retrace", "_maybe_split_upwards_cat_fanout"} <= vars(each).keys() for each in upwards)


def test_one_class_for_one_set_of_corrections():
    assert manager_of(("honest-fusion",)) is manager_of(("honest-fusion",))
    assert names(tuple(reversed(CORRECTIONS))) == names(CORRECTIONS)


def test_a_correction_of_nobody_s_is_refused():
    with pytest.raises(UsageError, match="hardtanh-defaults, honest-fusion, qparam-propagator"):
        SafeArmPartitioner(tosa(PROFILES[0]), corrections=(Correction("mine", "", "RemoveNoopPass"),))


@pytest.mark.skipif(not hasattr(upstream.ArmPassManager, "_apply_pass_insertions"), reason="no insertions before 1.3")
def test_a_user_s_insertion_finds_the_pass_we_swapped(monkeypatch):
    from executorch.backends.arm._passes import arm_pass_manager

    from safe_arm.passes.clamp_to_quant_range import ClampToQuantRangePass

    class Inserted(ClampToQuantRangePass):
        pass

    before = dict(arm_pass_manager._registered_pass_insertions)
    arm_pass_manager.register_pass_insertions_before(upstream.FuseConstantArgsPass, [Inserted()])
    try:
        ((_, passes),) = pass_names(monkeypatch, SafeArmPartitioner)
    finally:
        arm_pass_manager._registered_pass_insertions.clear()
        arm_pass_manager._registered_pass_insertions.update(before)
    order = [p.__name__ for p in passes]
    assert order[order.index("FuseConstantArgsPass") - 1] == "Inserted"
