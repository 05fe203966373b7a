"""A verdict on record is what stock does; a forged one fails the run that samples it."""

import copy
import os
from importlib.metadata import version

import pytest
import stock
import torch
import wheels
from executorch.backends.arm.quantizer import TOSAQuantizer
from executorch.backends.arm.tosa.partitioner import TOSAPartitioner
from lowering import PROFILES, codes_apart, delegates, lower, quantize, tosa
from small import Lambda, image
from spying import raising
from stock import SAMPLE, ForgedError, hash_of, is_sampled, stock_lower

from safe_arm import SafeArmPartitioner

PROFILE = PROFILES[0]


@pytest.fixture(scope="module")
def quantised():
    net = Lambda(lambda m, x: m.conv(x).relu())
    return quantize(net, image(), tosa(PROFILE), quantizer_class=TOSAQuantizer)


@pytest.fixture(scope="module")
def measured(quantised):
    """One program, of which nothing was on record, lowered and compared."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(stock, "record", dict)
        first = stock_lower(quantised, image(), TOSAPartitioner(tosa(PROFILE)))
        assert codes_apart(first, None, image()) == 0
    return first


@pytest.fixture
def known(monkeypatch, measured):
    """A record of that program; lowering it again gives what it gave."""
    verdicts = {measured.key: copy.deepcopy(measured._known)}
    monkeypatch.setattr(stock, "record", lambda: verdicts)
    monkeypatch.setattr(stock, "to_edge_transform_and_lower", lambda *_, **__: measured.manager)
    monkeypatch.setattr(stock, "is_sampled", lambda key: False)
    return verdicts[measured.key]


def test_the_record_is_of_these_wheels():
    if version("executorch").startswith("1.5."):
        assert len(stock.record()) > 100


def test_what_is_on_record_is_not_lowered_again(known, quantised, monkeypatch):
    monkeypatch.setattr(stock, "to_edge_transform_and_lower", None)
    again = stock_lower(quantised, image(), TOSAPartitioner(tosa(PROFILE)))
    assert codes_apart(again, quantised, image()) == 0
    assert delegates(again) == delegates(again)


def test_its_delegates_equal_those_of_the_same_bytes_and_no_others(known, quantised):
    recorded = delegates(stock_lower(quantised, image(), TOSAPartitioner(tosa(PROFILE))))
    lowered = delegates(lower(quantised, image(), TOSAPartitioner(tosa(PROFILE))))
    assert recorded == lowered
    assert lowered == recorded
    assert [bytes(each) for each in recorded] == lowered
    assert recorded != [lowered[0] + b"\0"]


def test_other_weights_inputs_or_profiles_are_other_programs(quantised):
    def key(module, profile=PROFILE):
        return stock.key_of(torch.export.export(module, image()), TOSAPartitioner(tosa(profile)))

    other = copy.deepcopy(quantised)
    name, weight = next((name, each) for name, each in other.named_buffers() if each.numel() > 8)
    weight.flatten()[0] += 1
    keys = {key(quantised), key(other), key(quantised, PROFILES[1])}
    assert len(keys) == 3, name


@pytest.mark.parametrize("what", ["delegates", "error"])
def test_a_forged_verdict_fails_where_it_is_sampled(known, quantised, monkeypatch, what):
    known[what] = {"delegates": ["0" * 64], "error": ["builtins", "IndexError", "forged"]}[what]
    monkeypatch.setattr(stock, "is_sampled", lambda key: True)
    with pytest.raises(ForgedError, match=f"has other {what}"):
        stock_lower(quantised, image(), TOSAPartitioner(tosa(PROFILE)))


def test_forged_codes_fail_where_they_are_sampled(known, quantised, monkeypatch):
    known["codes"] = dict.fromkeys(known["codes"], 7)
    program = stock_lower(quantised, image(), TOSAPartitioner(tosa(PROFILE)))
    assert codes_apart(program, quantised, image()) == 7
    monkeypatch.setattr(stock, "is_sampled", lambda key: True)
    with pytest.raises(ForgedError, match="has other codes apart"):
        codes_apart(program, quantised, image())


def test_every_verdict_is_sampled_once_in_so_many_days():
    assert len([day for day in range(SAMPLE) if is_sampled(hash_of("net", b"weights"), day)]) == 1
    assert hash_of("ab", "c") != hash_of("a", "bc")


def test_an_edited_wheel_is_found(monkeypatch):
    monkeypatch.delenv("SAFE_ARM_TEST_WHEELS", raising=False)
    monkeypatch.setattr(wheels, "PACKAGES", ("torchao",))
    assert wheels.patched() == []
    whole = wheels._hash
    monkeypatch.delenv("SAFE_ARM_TEST_WHEELS")
    monkeypatch.setattr(wheels, "_hash", lambda path: "" if path.name == "quant_api.py" else whole(path))
    assert [name for name in wheels.patched() if name.endswith("quant_api.py")] != []
    assert "SAFE_ARM_TEST_WHEELS" in os.environ


def test_what_is_raised_now_is_raised_itself(quantised, monkeypatch):
    """Where nothing is on record the error has the traceback of its own lowering."""
    monkeypatch.setattr(stock, "record", dict)
    raised = RuntimeError("of this lowering")
    monkeypatch.setattr(stock, "to_edge_transform_and_lower", raising(raised))
    with pytest.raises(RuntimeError) as caught:
        stock_lower(quantised, image(), TOSAPartitioner(tosa(PROFILE)))
    assert caught.value is raised


def test_only_stock_partitioners_have_verdicts(quantised):
    with pytest.raises(TypeError, match="SafeArmPartitioner is no stock partitioner"):
        stock_lower(quantised, image(), SafeArmPartitioner(tosa(PROFILE)))


def test_an_error_is_raised_as_it_was(known, quantised):
    known["error"] = ["builtins", "IndexError", "tuple index out of range"]
    with pytest.raises(IndexError, match="tuple index out of range"):
        stock_lower(quantised, image(), TOSAPartitioner(tosa(PROFILE)))
