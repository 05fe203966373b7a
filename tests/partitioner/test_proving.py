"""A delegate that is wrong fails like one that does not lower: what is to blame leaves, with what was measured."""

import pickle
from copy import deepcopy

import planting
import pytest
import torch
from executorch.backends.arm.ethosu import EthosUCompileSpec
from executorch.backends.arm.vgf import VgfCompileSpec
from lowering import PROFILES, WIDE, codes_apart, delegates, lower_safely, tosa
from mutations import MUTATIONS
from prepared import INT16, prepared
from ratios import quantised
from small import image
from spying import noted, raising
from stubborn import quantizer_of
from torch.fx.passes.operator_support import OperatorSupportBase

from safe_arm import SafeArmPartitioner, UsageError
from safe_arm._compat.upstream import TOSABackend
from safe_arm.core.errors import DemotionError
from safe_arm.core.float_comparison import FLOAT_COMPARISON_KEY, Compared
from safe_arm.core.island import op_name
from safe_arm.partitioner import proving
from safe_arm.partitioner.proving import Prover, Values
from safe_arm.verification.model_server import ReferenceModelError

pytestmark = [
    pytest.mark.usefixtures("by_measurement_alone"),
    pytest.mark.filterwarnings("ignore::safe_arm.core.errors.DemotionWarning"),
]

#: The same loss on every release, corrections or none.
RELU_DROPPED = next(m for m in MUTATIONS if m.id == "relu-dropped")
ISLAND = {"aten::convolution", "aten::relu"}


def lost_relu(m, x):
    """Losing this ReLU shows: ``cat`` gives it a zero point that is not qmin."""
    return torch.sigmoid(torch.cat((torch.relu(m.conv(x)), m.conv_b(x)), 1))


def sigmoid(m, x):
    return torch.sigmoid(x)


def large(seed=0):
    return (torch.rand((1, 4, 32, 32), generator=torch.Generator().manual_seed(seed)) * 2 - 1,)


LARGE = large()
#: Too little for the net on a large image: it has 294,912 multiply-accumulates.
BUDGET = 280_000


def proven(net=lost_relu, profile=PROFILES[0], inputs=None, verify=True, non_fuseable="propagate", **options):
    """The lowered program, the quantised net and the report."""
    net = prepared(net, profile, inputs)
    partitioner = net.partitioner(verify=verify, non_fuseable=non_fuseable, **options)
    return net.lowered(partitioner), net.graph_module, partitioner.report


def test_a_wrong_delegate_is_measured_and_its_island_demoted(profile):
    with RELU_DROPPED.planted():
        unverified, graph_module, _ = proven(profile=profile, verify=False)
        manager, _, report = proven(profile=profile)
    assert codes_apart(unverified, graph_module, image()) > 4
    assert {v.op for v in report.demoted} == ISLAND
    assert {v.stage for v in report.demoted} == {"verify"}
    assert all("differs from the quantised graph by up to" in v.reason for v in report.demoted)
    assert "codes in" in report.demoted[0].reason
    assert codes_apart(manager, graph_module, *map(image, range(4))) == 0


@pytest.mark.parametrize("spec", [VgfCompileSpec(PROFILES[1]), EthosUCompileSpec("ethos-u55-128")], ids=["vgf", "u55"])
def test_other_targets_are_measured_on_the_graph_their_compilers_get(spec):
    partitioner = SafeArmPartitioner(spec, verify=True, non_fuseable="propagate")
    with RELU_DROPPED.planted():
        partitioner.partition(prepared(lost_relu, PROFILES[0], None).program())
    assert {v.op for v in partitioner.report.demoted} == ISLAND
    assert {v.stage for v in partitioner.report.demoted} == {"verify"}
    assert [each.verified for each in partitioner.report.verifications] == [True]


def test_what_is_right_stays_and_ships_the_same_bytes(profile):
    verified, _, report = proven(profile=profile)
    assert report.demoted == ()
    assert delegates(verified) == delegates(proven(profile=profile, verify=False)[0])


def test_strict_stops_at_the_first_difference():
    differs = r"Conv2d conv \(aten::convolution\), aten::relu .*differs from the quantised graph by"
    with RELU_DROPPED.planted(), pytest.raises(DemotionError, match=differs):
        proven(strict=True)


def test_a_model_that_rejects_the_delegate_is_a_failed_proof(monkeypatch):
    error = ReferenceModelError("the TOSA reference model rejects this delegate: TOSA_ERROR")
    prove, runner = proving.prove, raising(error)
    monkeypatch.setattr(proving, "prove", lambda delegate, samples, _, **how: prove(delegate, samples, runner, **how))
    _, _, report = proven(sigmoid)
    assert report.delegates == ()
    assert "rejects this delegate: TOSA_ERROR" in report.demoted[0].reason


def test_made_up_weights_prove_nothing():
    proof = Prover(float_borders=True).prove(None, real=False)
    assert not proof.verified
    assert not proof.wrong
    assert "real weights" in proof.reason


def test_a_delegate_beyond_the_budget_is_not_verified_and_the_report_says_so():
    _, _, report = proven(verify_budget=1000, non_fuseable="reject")
    (record,) = report.verifications
    assert not record.verified
    assert record.macs == 4 * 4 * 9 * 64
    assert record.reason.startswith("not verified, 9216 MACs: more than verify_budget=1000; a crop within the budget")
    assert report.demoted == ()


@pytest.mark.parametrize(
    ("budget", "tried", "size"),
    [(BUDGET, 6, "12x12"), (2 * 4 * 4 * 9 * 9, 1, "3x3")],
    ids=["for all sets of inputs", "for one, which is better than none"],
)
def test_a_delegate_beyond_the_budget_is_verified_on_a_crop_and_the_report_says_so(budget, tried, size):
    _, _, report = proven(inputs=LARGE, verify_budget=budget)
    (record,) = report.verifications
    assert (record.verified, record.reason, record.tried) == (True, "", tried)
    assert record.note == f"verified on cropped inputs {size}, {2 * 4 * 4 * 9 * 1024} MACs in full"


def test_a_delegate_that_is_wrong_on_a_crop_is_wrong():
    swapped = planting.arg(0, lambda tensors: list(tensors)[::-1], "aten::cat")
    with planting.planted("ExirToTosaPass", swapped, before=True):
        manager, graph_module, report = proven(inputs=LARGE, verify_budget=BUDGET)
    assert "aten::cat" in {v.op for v in report.demoted}
    assert {v.stage for v in report.demoted} == {"verify"}
    assert all(v.reason.endswith(" values on inputs cropped to 12x12") for v in report.demoted)
    assert codes_apart(manager, graph_module, large(3)) == 0


def test_the_samples_of_the_user_are_cropped_too(monkeypatch):
    seen = noted(monkeypatch, proving, "prove", lambda delegate, samples, *_, **__: samples[0].inputs[0].shape)
    _, _, report = proven(inputs=LARGE, verify_budget=BUDGET, verify_samples=[large(3)])
    assert report.verifications[0].verified
    assert {tuple(shape[2:]) for shape in seen} == {(11, 11)}


def test_a_crop_that_does_not_lower_is_not_verified(monkeypatch):
    real = TOSABackend._preprocess

    def only_in_full(program, specs):
        if any(n.meta["val"].shape[-2:] == (12, 12) for n in program.graph.nodes if n.op == "placeholder"):
            raise RuntimeError("the injected fault")
        return real(program, specs)

    monkeypatch.setattr(TOSABackend, "_preprocess", staticmethod(only_in_full))
    _, _, report = proven(inputs=LARGE, verify_budget=BUDGET)
    (record,) = report.verifications
    assert not record.verified
    assert record.reason.startswith("not verified: its crop to 12x12 does not lower: RuntimeError: the injected fault")
    assert report.demoted == ()


def test_the_samples_of_the_user_are_run_first():
    _, _, report = proven(sigmoid, verify_samples=[image(3), image(4)])
    (record,) = report.verifications
    assert (record.verified, record.worst, record.tried) == (True, 0, 8)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"preflight": False}, "leave preflight=False out"),
        ({"verify_budget": 0}, "verify_budget 0 is not a positive number"),
        ({"verify": False, "verify_tolerance": 1}, "pass both or neither"),
        *(({"verify_tolerance": bad}, f"{bad!r} is no number of codes") for bad in (-1, 0.5, True, "1")),
        ({"verify": False, "verify_samples": [image()]}, "pass both or neither"),
        ({"verify": None, "preflight": False, "verify_samples": [image()]}, "verify_samples are for verify=True"),
        ({"verify_samples": []}, "there are no samples"),
        ({"verify_samples": [torch.zeros(1)]}, "sample 0 is a Tensor; give a tuple of tensors"),
        ({"verify_samples": [image(), (image()[0] * torch.nan,)]}, "input 0 of sample 1 has a NaN or an infinity"),
        ({"verify_samples": [(image()[0] * torch.inf,)]}, "input 0 of sample 0 has a NaN or an infinity"),
    ],
)
def test_options_that_cannot_prove_anything_are_refused(options, says):
    with pytest.raises(UsageError, match=says):
        SafeArmPartitioner(tosa(PROFILES[0]), **{"verify": True, **options})


@pytest.mark.parametrize(
    ("sample", "says"),
    [
        ((), "sample 0 has 0 tensors; the model takes 1"),
        ((torch.zeros(1, 4, 8, 9),), r"of shape \(1, 4, 8, 9\); the model takes float32 of shape \(1, 4, 8, 8\)"),
        ((torch.zeros(1, 4, 8, 8, dtype=torch.int8),), r"is int8 of shape \(1, 4, 8, 8\); the model takes float32"),
    ],
    ids=["count", "shape", "dtype"],
)
def test_samples_that_do_not_fit_the_model_are_refused(sample, says):
    partitioner = SafeArmPartitioner(tosa(PROFILES[0]), verify=True, verify_samples=[sample])
    with pytest.raises(UsageError, match=says):
        partitioner.partition(prepared(sigmoid, PROFILES[0], None).program())


def shifted(codes):
    """Every entry of sigmoid's table is so many codes too high."""
    moved = planting.data(1, lambda table: (table.int() + codes).clamp(max=127).to(table.dtype), "tosa::TABLE")
    return planting.planted("InsertTableOpsPass", moved)


@pytest.mark.parametrize(
    ("codes", "tolerance", "demoted"), [(1, 0, True), (1, 1, False), (2, 1, True)], ids=["none", "within", "beyond"]
)
def test_the_user_s_tolerance_is_what_is_accepted_and_no_more(codes, tolerance, demoted):
    with shifted(codes):
        _, _, report = proven(sigmoid, verify_tolerance=tolerance)
    assert ("aten::sigmoid" in {verdict.op for verdict in report.demoted}) is demoted
    assert [record.worst for record in report.verifications if record.worst] == ([] if demoted else [codes])


def test_a_proof_is_kept_by_device_and_not_at_all_with_samples_of_the_user_s():
    assert Prover(True, device="u55").key("cut", b"") != Prover(True, device="u85").key("cut", b"") != ""
    assert Prover(True).key("cut", b"") == ""
    assert Prover(True, device="u55", samples=(image(),)).key("cut", b"") == ""


class _NoSums(OperatorSupportBase):
    """A check of the user's that keeps sums on the CPU."""

    def is_node_supported(self, submodules, node):
        return op_name(node) != "aten::sum"


def test_codes_of_32_bits_that_enter_a_delegate_are_those_the_net_gives():
    def deviation(m, x):
        return torch.std(x, (2, 3))

    # A sum of many products is larger than any code that is made up.
    beyond_the_least = planting.data(1, lambda table: torch.cat((table[:9], table[9:].flip(0))), "tosa::TABLE")
    _, _, right = proven(deviation, additional_checks=[_NoSums()])
    with planting.planted("InsertTableOpsPass", beyond_the_least):
        _, _, wrong = proven(deviation, additional_checks=[_NoSums()])
    assert [len(right.demoted), *(proof.tried for proof in right.verifications)] == [0, 8, 8]
    assert "aten::rsqrt" in {verdict.op for verdict in wrong.demoted}


def deviating(m, x):
    """A table of 16 bits whose lines are far from it where a row varies little, as no row does that is made up."""
    return x + torch.acosh(x.var(-1, keepdim=True) + 0.995)


def spread(seed=0, rows=16):
    draw = torch.Generator().manual_seed(seed)
    return (torch.randn(rows, 32, generator=draw) * torch.logspace(-1, 0.5, rows).unsqueeze(1),)


@pytest.fixture(scope="module")
def calibrated_wide():
    samples = [spread(seed) for seed in range(4)]
    return quantised(deviating, quantizer_of(profile=INT16, config=WIDE), samples)


def texts(graph_module):
    """The notes of the comparison with the float net, each with the dictionary that holds it."""
    notes = (node.meta.get("custom", {}) for node in graph_module.graph.nodes)
    return [(held, held[FLOAT_COMPARISON_KEY]) for held in notes if FLOAT_COMPARISON_KEY in held]


def tried(graph_module, inputs):
    """How often the delegates of a graph were run, and the operators that were demoted."""
    _, partitioner = lower_safely(graph_module, inputs, tosa(INT16))
    report = partitioner.report
    return {proof.tried for proof in report.verifications}, {verdict.op for verdict in report.demoted}


def test_a_table_of_16_bits_is_verified_on_calibration_samples(calibrated_wide):
    assert len(texts(calibrated_wide)[0][1].samples) == 2
    assert tried(calibrated_wide, spread()) == ({8}, {"aten::acosh"})


def test_without_them_made_up_inputs_miss_it(calibrated_wide):
    """What is saved and loaded has the text alone."""
    copy = deepcopy(calibrated_wide)
    for held, text in texts(copy):
        assert type(text) is Compared
        held[FLOAT_COMPARISON_KEY] = pickle.loads(pickle.dumps(text))
        assert type(held[FLOAT_COMPARISON_KEY]) is str
    assert tried(copy, spread()) == ({6}, set())


@pytest.mark.parametrize("samples", [(spread(rows=8),), ((torch.full((16, 32), torch.nan),),), (("x",),)])
def test_samples_that_do_not_fit_the_program_are_left_out(calibrated_wide, samples):
    copy = deepcopy(calibrated_wide)
    for held, text in texts(copy):
        held[FLOAT_COMPARISON_KEY] = other = Compared(text)
        other.samples = samples
    assert tried(copy, spread()) == ({6}, set())


def test_a_net_of_8_bits_is_verified_on_made_up_inputs():
    graph_module = quantised(deviating, quantizer_of(profile=INT16), [spread()])
    assert tried(graph_module, spread()) == ({6}, set())


def test_the_proof_on_calibration_samples_is_kept_for_these():
    prover = Prover(True, device="u55")
    keys = {prover.key("cut", b"", [Values("x", {"x": value})]) for value in (torch.zeros(()), torch.ones(()))}
    assert len(keys | {prover.key("cut", b""), ""}) == 4
