"""A delegate that is wrong fails like one that does not lower: what is to blame leaves, with what was measured."""

import sys
import warnings
from contextlib import contextmanager

import planting
import pytest
import torch
from executorch.backends.arm.ethosu import EthosUCompileSpec
from executorch.backends.arm.vgf import VgfCompileSpec
from lowering import PROFILES, codes_apart, delegates, edge_program, lower, quantize, tosa
from mutations import MUTATIONS
from small import Lambda, image

from safe_arm import SafeArmPartitioner, SafeEthosUQuantizer, SafeVgfQuantizer, UsageError
from safe_arm._compat.tested_releases import executorch_version, parse
from safe_arm._compat.upstream import TOSABackend
from safe_arm.core.errors import DemotionError, DemotionWarning
from safe_arm.partitioner import proving
from safe_arm.partitioner.proving import Prover
from safe_arm.verification import reference_model

pytestmark = pytest.mark.usefixtures("by_measurement_alone")

#: ExecuTorch deletes the ReLU of these tests from 1.5 on.
STOCK_LOSES_RELU = parse(executorch_version()) >= (1, 5)
STOCK = {"corrections": (), "non_fuseable": "propagate"}
#: The same loss on every release, corrections or none.
RELU_DROPPED = next(m for m in MUTATIONS if m.id == "relu-dropped")
ISLAND = {"aten::convolution", "aten::relu"}


def lost_relu():
    """Losing this ReLU shows: ``cat`` gives it a zero point that is not qmin."""
    return Lambda(lambda m, x: torch.sigmoid(torch.cat((torch.relu(m.conv(x)), m.conv_b(x)), 1)))


def exported(net, profile, **options):
    spec, inputs = tosa(profile), image()
    graph_module = quantize(net, inputs, spec)
    partitioner = SafeArmPartitioner(spec, verify=True, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DemotionWarning)
        manager = lower(graph_module, inputs, partitioner)
    return manager, graph_module, partitioner.report


def lowered_unverified(profile, **options):
    """What ``exported`` lowers, by the partitioner without its verification."""
    spec, inputs = tosa(profile), image()
    graph_module = quantize(lost_relu(), inputs, spec)
    return lower(graph_module, inputs, SafeArmPartitioner(spec, verify=False, **options)), graph_module


@pytest.mark.parametrize("profile", PROFILES)
def test_a_wrong_delegate_is_measured_and_its_island_demoted(profile):
    with RELU_DROPPED.planted():
        unverified = lowered_unverified(profile, non_fuseable="propagate")
        manager, graph_module, report = exported(lost_relu(), profile, non_fuseable="propagate")
    assert codes_apart(*unverified, image()) > 4
    assert {v.op for v in report.demoted} == ISLAND
    assert {v.stage for v in report.demoted} == {"verify"}
    assert all("differs from the quantised graph by up to" in v.reason for v in report.demoted)
    assert "codes in" in report.demoted[0].reason
    assert codes_apart(manager, graph_module, *(image(seed) for seed in range(4))) == 0


@pytest.mark.parametrize("profile", PROFILES)
def test_the_relu_stock_loses_is_demoted_where_stock_loses_it(profile):
    assert (codes_apart(*lowered_unverified(profile, **STOCK), image()) > 4) == STOCK_LOSES_RELU
    manager, graph_module, report = exported(lost_relu(), profile, **STOCK)
    assert {v.op for v in report.demoted} == (ISLAND if STOCK_LOSES_RELU else set())
    assert [each.verified for each in report.verifications] == [True]
    assert codes_apart(manager, graph_module, *(image(seed) for seed in range(4))) == 0


@pytest.mark.parametrize("spec", [VgfCompileSpec(PROFILES[1]), EthosUCompileSpec("ethos-u55-128")], ids=["vgf", "u55"])
def test_other_targets_are_measured_on_the_graph_their_compilers_get(spec):
    quantizer = SafeVgfQuantizer if isinstance(spec, VgfCompileSpec) else SafeEthosUQuantizer
    graph_module = quantize(lost_relu(), image(), spec, quantizer_class=quantizer)
    partitioner = SafeArmPartitioner(spec, verify=True, non_fuseable="propagate")
    with RELU_DROPPED.planted(), warnings.catch_warnings():
        warnings.simplefilter("ignore", DemotionWarning)
        lower(graph_module, image(), partitioner)
    assert {v.op for v in partitioner.report.demoted} == ISLAND
    assert {v.stage for v in partitioner.report.demoted} == {"verify"}
    assert [each.verified for each in partitioner.report.verifications] == [True]


@pytest.mark.parametrize("profile", PROFILES)
def test_what_is_right_stays_and_ships_the_same_bytes(profile):
    verified, _, report = exported(lost_relu(), profile, non_fuseable="propagate")
    assert report.demoted == ()
    unverified, _ = lowered_unverified(profile, non_fuseable="propagate")
    assert delegates(verified) == delegates(unverified)


def test_strict_stops_at_the_first_difference():
    differs = r"Conv2d conv \(aten::convolution\), aten::relu .*differs from the quantised graph by"
    with RELU_DROPPED.planted(), pytest.raises(DemotionError, match=differs):
        exported(lost_relu(), PROFILES[0], strict=True, non_fuseable="propagate")


def test_a_model_that_rejects_the_delegate_is_a_failed_proof(monkeypatch):
    def rejecting(flatbuffer, inputs):
        raise reference_model.ReferenceModelError("the TOSA reference model rejects this delegate: TOSA_ERROR")

    monkeypatch.setattr(
        proving,
        "prove",
        lambda delegate, samples, runner, real=proving.prove, **more: real(delegate, samples, rejecting, **more),
    )
    _, _, report = exported(lost_relu(), PROFILES[0], **STOCK)
    assert report.delegates == ()
    assert "rejects this delegate: TOSA_ERROR" in report.demoted[0].reason


def test_made_up_weights_prove_nothing():
    proof = Prover(float_borders=True).prove(None, real=False)
    assert not proof.verified
    assert not proof.wrong
    assert "real weights" in proof.reason


def test_it_needs_the_trial_lowering():
    with pytest.raises(UsageError, match="leave preflight=False out"):
        SafeArmPartitioner(tosa(PROFILES[0]), verify=True, preflight=False)


def test_a_delegate_beyond_the_budget_is_not_verified_and_the_report_says_so():
    _, _, report = exported(lost_relu(), PROFILES[0], verify_budget=1000)
    (record,) = report.verifications
    assert not record.verified
    assert record.macs == 4 * 4 * 9 * 64
    assert record.reason.startswith("not verified, 9216 MACs: more than verify_budget=1000; a crop within the budget")
    assert report.demoted == ()


#: Too little for the net on a large image: it has 294,912 multiply-accumulates.
BUDGET = 280_000


def large(seed=0):
    return (torch.rand((1, 4, 32, 32), generator=torch.Generator().manual_seed(seed)) * 2 - 1,)


def test_a_delegate_beyond_the_budget_is_verified_on_a_crop_and_the_report_says_so(monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "image", large)
    _, _, report = exported(lost_relu(), PROFILES[0], non_fuseable="propagate", verify_budget=BUDGET)
    (record,) = report.verifications
    assert (record.verified, record.reason, record.tried) == (True, "", 6)
    assert record.note == f"verified on cropped inputs 12x12, {2 * 4 * 4 * 9 * 1024} MACs in full"


def test_a_crop_for_one_set_of_inputs_is_better_than_none(monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "image", large)
    _, _, report = exported(lost_relu(), PROFILES[0], non_fuseable="propagate", verify_budget=2 * 4 * 4 * 9 * 9)
    (record,) = report.verifications
    assert (record.verified, record.tried) == (True, 1)
    assert record.note.startswith("verified on cropped inputs 3x3")


def test_a_delegate_that_is_wrong_on_a_crop_is_wrong(monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "image", large)
    swapped = planting.arg(0, lambda tensors: list(tensors)[::-1], "aten::cat")
    with planting.planted("ExirToTosaPass", swapped, before=True):
        manager, graph_module, report = exported(
            lost_relu(), PROFILES[0], verify_budget=BUDGET, non_fuseable="propagate"
        )
    assert "aten::cat" in {v.op for v in report.demoted}
    assert {v.stage for v in report.demoted} == {"verify"}
    assert all(v.reason.endswith(" values on inputs cropped to 12x12") for v in report.demoted)
    assert codes_apart(manager, graph_module, large(3)) == 0


def test_the_samples_of_the_user_are_cropped_too(monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "image", large)
    options = {"non_fuseable": "propagate", "verify_budget": BUDGET, "verify_samples": [large(3)]}
    seen = []
    real = proving.prove

    def watching(delegate, samples, *rest, **more):
        seen.extend(sample.inputs[0].shape for sample in samples)
        return real(delegate, samples, *rest, **more)

    monkeypatch.setattr(proving, "prove", watching)
    _, _, report = exported(lost_relu(), PROFILES[0], **options)
    assert report.verifications[0].verified
    assert {tuple(shape[2:]) for shape in seen} == {(11, 11)}


def test_who_watches_a_proof_is_told_its_size_and_of_every_set_of_inputs():
    told = []

    @contextmanager
    def during(cost, seconds, runs):
        told.append((cost, seconds, runs))
        yield lambda: told.append("ran")
        told.append("done")

    partitioner = SafeArmPartitioner(tosa(PROFILES[0]), verify=True, non_fuseable="propagate")
    partitioner.during_proof = during
    lower(quantize(lost_relu(), image(), tosa(PROFILES[0])), image(), partitioner)
    (cost, seconds, runs), *rest = told
    assert (cost, runs) == (2 * 4 * 4 * 9 * 64, 6)
    assert seconds > runs * cost / proving.MACS_PER_SECOND, "what only moves or looks up costs too"
    assert rest == [*["ran"] * 6, "done"]


def test_a_crop_that_does_not_lower_is_not_verified(monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "image", large)
    real = TOSABackend._preprocess

    def only_in_full(program, specs):
        if any(n.meta["val"].shape[-2:] == (12, 12) for n in program.graph.nodes if n.op == "placeholder"):
            raise RuntimeError("the injected fault")
        return real(program, specs)

    monkeypatch.setattr(TOSABackend, "_preprocess", staticmethod(only_in_full))
    _, _, report = exported(lost_relu(), PROFILES[0], non_fuseable="propagate", verify_budget=BUDGET)
    (record,) = report.verifications
    assert not record.verified
    assert record.reason.startswith("not verified: its crop to 12x12 does not lower: RuntimeError: the injected fault")
    assert report.demoted == ()


def test_the_samples_of_the_user_are_run_first():
    _, _, report = exported(lost_relu(), PROFILES[0], verify_samples=[image(3), image(4)], non_fuseable="propagate")
    (record,) = report.verifications
    assert (record.verified, record.worst, record.tried) == (True, 0, 8)


@pytest.mark.parametrize(
    ("samples", "says"),
    [
        ([], "there are no samples"),
        ([torch.zeros(1)], "sample 0 is a Tensor; give a tuple of tensors"),
        ([image(), (torch.full((1, 4, 8, 8), torch.nan),)], "input 0 of sample 1 has a NaN or an infinity"),
        ([(torch.full((1, 4, 8, 8), torch.inf),)], "input 0 of sample 0 has a NaN or an infinity"),
    ],
    ids=["none", "no-tuple", "nan", "inf"],
)
def test_samples_that_cannot_prove_anything_are_refused(samples, says):
    with pytest.raises(UsageError, match=says):
        SafeArmPartitioner(tosa(PROFILES[0]), verify=True, verify_samples=samples)


@pytest.mark.parametrize(
    ("sample", "says"),
    [
        ((), "sample 0 has 0 tensors; the model takes 1"),
        (
            (torch.zeros(1, 4, 8, 9),),
            r"float32 of shape \(1, 4, 8, 9\); the model takes float32 of shape \(1, 4, 8, 8\)",
        ),
        ((torch.zeros(1, 4, 8, 8, dtype=torch.int8),), r"is int8 of shape \(1, 4, 8, 8\); the model takes float32"),
    ],
    ids=["count", "shape", "dtype"],
)
def test_samples_that_do_not_fit_the_model_are_refused(sample, says):
    net, inputs = Lambda(lambda m, x: torch.sigmoid(x)), image()
    program = edge_program(quantize(net, inputs, tosa(PROFILES[0])), inputs)
    partitioner = SafeArmPartitioner(tosa(PROFILES[0]), verify=True, verify_samples=[sample])
    with pytest.raises(UsageError, match=says):
        partitioner.partition(program)


def test_samples_without_verification_are_a_mistake():
    with pytest.raises(UsageError, match="pass both or neither"):
        SafeArmPartitioner(tosa(PROFILES[0]), verify=False, verify_samples=[image()])


def shifted(codes):
    """Every entry of sigmoid's table is so many codes too high."""
    moved = planting.data(1, lambda table: (table.int() + codes).clamp(max=127).to(table.dtype), "tosa::TABLE")
    return planting.planted("InsertTableOpsPass", moved)


@pytest.mark.parametrize(
    ("codes", "tolerance", "demoted"), [(1, 0, True), (1, 1, False), (2, 1, True)], ids=["none", "within", "beyond"]
)
def test_the_user_s_tolerance_is_what_is_accepted_and_no_more(codes, tolerance, demoted):
    net = Lambda(lambda m, x: torch.sigmoid(m.conv(x))).eval()
    with shifted(codes):
        _, _, report = exported(net, PROFILES[0], verify_tolerance=tolerance)
    assert ("aten::sigmoid" in {verdict.op for verdict in report.demoted}) is demoted
    assert [record.worst for record in report.verifications if record.worst] == ([] if demoted else [codes])


@pytest.mark.parametrize("tolerance", [-1, 0.5, True, "1"])
def test_a_tolerance_that_is_no_number_of_codes_is_a_mistake(tolerance):
    with pytest.raises(UsageError, match=rf"verify_tolerance {tolerance!r} is no number of codes"):
        SafeArmPartitioner(tosa(PROFILES[0]), verify_tolerance=tolerance)


def test_a_tolerance_without_verification_is_a_mistake():
    with pytest.raises(UsageError, match="pass both or neither"):
        SafeArmPartitioner(tosa(PROFILES[0]), verify=False, verify_tolerance=1)


def test_a_budget_of_nothing_is_a_mistake():
    with pytest.raises(UsageError, match="verify_budget 0 is not a positive number"):
        SafeArmPartitioner(tosa(PROFILES[0]), verify=True, verify_budget=0)


def test_it_needs_the_reference_model(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "tosa_reference_model", None)
    with pytest.raises(UsageError, match="pip install 'tosa-tools"):
        SafeArmPartitioner(tosa(PROFILES[0]), verify=True)


def test_a_proof_is_kept_by_device_and_not_at_all_with_samples_of_the_user_s():
    assert Prover(True, device="u55").key("cut", b"") != Prover(True, device="u85").key("cut", b"") != ""
    assert Prover(True).key("cut", b"") == ""
    assert Prover(True, device="u55", samples=(image(),)).key("cut", b"") == ""
