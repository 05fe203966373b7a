"""A proof that cannot be made is no pass, and no reason to demote."""

import pytest
import torch
from lowering import PROFILES
from proving import delegates_of, quantized
from small import Lambda, image
from spying import raising

from safe_arm.verification import proof as proof_module
from safe_arm.verification.evaluation import evaluated
from safe_arm.verification.model_server import ReferenceModelError
from safe_arm.verification.proof import prove
from safe_arm.verification.reference_model import run_tosa


def test_what_is_exact_is_verified_and_is_evaluated_once_a_set(delegate, monkeypatch):
    ways = []

    def counted(*given, **options):
        ways.append(options.get("ties_up", False))
        return evaluated(*given, **options)

    monkeypatch.setattr(proof_module, "evaluated", counted)
    proof = prove(delegate)
    assert (proof.verified, proof.worst, proof.tried, proof.reason, proof.note) == (True, 0.0, 6, "", "")
    assert (proof.apart_worst, proof.apart_mean, proof.apart_unit, proof.ties) == (0.0, 0.0, "codes", ())
    assert ways == [False] * 6
    assert prove(delegate, most=2).tried == 2


def test_an_operator_with_a_row_in_the_table_of_tolerances_is_no_tie():
    net = Lambda(lambda m, x: torch.sigmoid(4 * m.conv(x)))
    profile = "TOSA-1.0+INT+int16"
    (made,) = delegates_of(quantized(net, image(), profile, wide=True), image(), profile)
    proof = prove(made)
    assert (proof.verified, proof.ties) == (True, ())
    assert "sigmoid" in proof.tolerated
    assert proof.apart_worst >= 1


def test_where_a_function_has_no_value_no_code_is_far():
    """A logarithm's table goes on below 0, where the quantised graph has the code of a NaN."""
    inputs = (4 * torch.rand(4, 32, generator=torch.Generator().manual_seed(1)),)
    net = Lambda(lambda m, x: 10 * torch.log10(x + 1e-6))
    profile = "TOSA-1.0+INT+int16"
    (made,) = delegates_of(quantized(net, inputs, profile, wide=True), inputs, profile)
    proof = prove(made)
    assert proof.verified
    assert proof.tolerated == ("log10",)
    assert proof.apart_worst < 20  # 32,767 below 0.


def test_every_single_wrong_code_is_seen(delegate):
    def off_by_one(flatbuffer, inputs):
        outputs = run_tosa(flatbuffer, inputs)
        last = outputs[-1].reshape(-1)
        last[7] += 1 if last[7] < 127 else -1
        return outputs

    proof = prove(delegate, runner=off_by_one)
    assert not proof.verified
    assert "differs from the quantised graph by up to 1 code in 1 of 256 values (random)" in proof.reason
    assert {name for culprit in proof.culprits for name in culprit.names} == {"aten_sigmoid_default"}


def test_a_rejected_delegate_is_wrong(delegate):
    rejection = ReferenceModelError("the TOSA reference model rejects this delegate: TOSA_ERROR: rank")
    proof = prove(delegate, runner=raising(rejection))
    assert proof.rejected
    assert proof.wrong
    assert proof.reason.endswith("TOSA_ERROR: rank")


@pytest.mark.parametrize("error", [TypeError("no numpy for bfloat16"), RuntimeError("odd")], ids=["type", "runtime"])
def test_a_runner_that_fails_in_another_way_proves_nothing(delegate, error):
    proof = prove(delegate, runner=raising(error))
    assert (proof.verified, proof.wrong) == (False, False)
    assert proof.reason == f"not verified: {type(error).__name__}: {error}"


def test_memory_errors_get_through(delegate):
    with pytest.raises(MemoryError):
        prove(delegate, runner=raising(MemoryError()))


def test_what_computes_an_index_is_tried_on_integers_that_lead_to_its_table():
    """Positions that begin at 2, as many text encoders number them; beyond a table PyTorch raises."""

    def looked_up(m, ids):
        return torch.nn.functional.embedding(ids + 2, m.linear.weight)

    ids = (torch.tensor([[0, 3, 5]], dtype=torch.int32),)
    profile = PROFILES[1]
    (delegate,) = delegates_of(quantized(Lambda(looked_up), ids, profile), ids, profile)
    assert prove(delegate).verified
    off = prove(delegate, runner=lambda *given: tuple(codes.roll(1, 1) for codes in run_tosa(*given)))
    assert off.culprits
