"""A shipped program against its proof: what passes, and what is caught with its name."""

import json
import re
import shutil
from dataclasses import asdict

import pytest
import torch
from bundling import shipped, two_delegates
from small import Built
from torch import nn

from safe_arm._compat.pte import constants_of, delegates_of, read_program
from safe_arm._compat.pte_runtime import bundled, check_bundle, read_bundle
from safe_arm.bundle.verifying import verify_pte
from safe_arm.core.errors import UsageError
from safe_arm.core.float_comparison import FloatComparison, OutputFidelity


def outcomes(checked):
    return {step.name: step.outcome for step in checked.steps if step.outcome != "recorded"}


def flip(path, data, place):
    """Flip one bit of some bytes in a file."""
    content = bytearray(path.read_bytes())
    content[bytes(content).index(data) + place] ^= 1
    path.write_bytes(content)


def failed(pte):
    """The names of what fails, all that is checked when a hash differs."""
    steps = verify_pte(pte).steps
    assert [step.outcome for step in steps if step.name == "runs"] == ["not run"]
    return [step.name for step in steps if step.outcome == "failed"]


RUN = "forward in the TOSA reference model and ExecuTorch's runtime"
VULKAN = "forward with the program's own VGF on Vulkan"


@pytest.mark.parametrize(
    ("bundle", "names"),
    [
        ("between", ["hashes", RUN]),
        ("alone", ["hashes", "forward in ExecuTorch's runtime, by its own comparison"]),
        ("ethos_u", ["hashes", *(f"forward:tag{n} compiled again by Vela" for n in (0, 1)), RUN]),
        ("vgf", ["hashes", *(f"forward:tag{n} compiled again by model-converter" for n in (0, 1)), RUN, VULKAN]),
    ],
)
def test_a_program_passes_end_to_end_and_is_compiled_again_to_the_same_bytes(request, bundle, names):
    found = outcomes(verify_pte(request.getfixturevalue(bundle).pte))
    assert set(found) == set(names)
    assert found.pop(VULKAN, "not run") in ("passed", "not run")
    assert set(found.values()) == {"passed"}


def test_what_the_proof_says_of_the_results_is_repeated_in_the_words_of_the_report(between, tmp_path):
    pte = between.copied(tmp_path)
    proof = pte.with_suffix(".proof.json")
    content = json.loads(proof.read_text())
    content["verifications"][0] |= {"delegate": "tag0", "apart_worst": 7.0, "apart_mean": 0.65, "ties": ["avg_pool2d"]}
    output = OutputFidelity("output 0", sqnr=38.2, worst_sqnr=35.1, worst_sample=4)
    content["float_comparisons"] = [asdict(FloatComparison(outputs=(output,), samples=32))]
    proof.write_text(json.dumps(content))
    steps = verify_pte(pte).steps
    assert [(step.name, step.detail) for step in steps if step.outcome == "recorded"] == [
        ("float net", "38.2 dB at output 0, worst sample 35.1 dB (sample 4), on 32 calibration samples"),
        ("verified", "2 of 2 delegates against the quantised graph: 1 exact, 1 operator by operator; ties of "
         "avg_pool2d add up to 7 codes at output 0 of tag0, mean 0.65"),
    ]  # fmt: skip


#: A delegate, and an operator behind it on the CPU that gives NaN for what is negative.
NOT_A_NUMBER = Built(lambda m, x: torch.log2(m.conv(x)), conv=nn.Conv2d(4, 4, 3))


def test_a_nan_where_one_is_expected_passes(tmp_path):
    program = shipped("tosa", NOT_A_NUMBER, tmp_path / "net")
    _, suites = read_bundle(program.pte.with_suffix(".bpte").read_bytes(), "bundle")
    assert any(output.isnan().any() for _, outputs in suites["forward"] for output in outputs)
    assert verify_pte(program.pte).good


def test_the_program_s_own_comparison_sees_a_wrong_expectation(alone):
    """The runtime's comparison can fail: the same bundle with nothing allowed to differ and a bit that does."""
    assert not alone.manifest.delegates
    _, suites = read_bundle(alone.pte.with_suffix(".bpte").read_bytes(), "bundle")
    (inputs, outputs), *_ = suites["forward"]
    right, wrong = ({"forward": [(inputs, [outputs[0] + off])]} for off in (0.0, 1e-3))
    assert check_bundle(bundled(alone.pte, right), "forward", 0, 1e-6) == ""
    assert check_bundle(bundled(alone.pte, wrong), "forward", 0, 1e-6) != ""


def test_a_flipped_bit_of_a_weight_is_named(alone, tmp_path):
    pte = alone.copied(tmp_path)
    weight, bias = constants_of(read_program(pte.read_bytes(), "net")).values()
    flip(pte, bias, 3)
    assert failed(pte) == ["linear.bias of linear"]
    flip(alone.copied(tmp_path), weight, 30)
    assert failed(pte) == ["linear.weight of linear"]


@pytest.mark.parametrize("index", [0, 1])
def test_a_flipped_bit_of_a_delegate_is_named(ethos_u, tmp_path, index):
    pte = ethos_u.copied(tmp_path)
    delegate = list(delegates_of(read_program(pte.read_bytes(), "net")))[index]
    flip(pte, delegate.data, len(delegate.data) // 2)
    assert failed(pte) == [ethos_u.manifest.delegates[index].data.name]


def test_a_flipped_bit_of_an_expected_output_is_named(between, tmp_path):
    pte = between.copied(tmp_path)
    bundle = pte.with_suffix(".bpte")
    _, suites = read_bundle(bundle.read_bytes(), "bundle")
    flip(bundle, suites["forward"][1][1][0].numpy().tobytes(), 1)
    assert failed(pte) == ["expected output 0 of case 'random again' of forward"]


def test_a_flipped_bit_of_a_graph_is_named(ethos_u, tmp_path):
    pte = ethos_u.copied(tmp_path)
    archive = pte.with_suffix(".proof.zip")
    flip(archive, archive.read_bytes()[60:90], 0)
    assert failed(pte) == ["net.proof.zip"]


def test_a_flipped_instruction_is_the_program_s(between, tmp_path):
    pte = between.copied(tmp_path)
    flip(pte, b"aten::atan2", 9)
    assert failed(pte) == ["net.pte"]


def refused(pte):
    with pytest.raises(UsageError) as caught:
        verify_pte(pte)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("kept", [40, 1000, -1])
def test_a_truncated_program_is_bad_input(between, tmp_path, kept):
    pte = between.copied(tmp_path)
    pte.write_bytes(pte.read_bytes()[:kept])
    assert re.search(r"truncated.*; copy it again", refused(pte))


def test_another_program_s_manifest_is_bad_input(between, alone, tmp_path):
    pte = between.copied(tmp_path)
    shutil.copy(alone.pte.with_suffix(".proof.json"), pte.with_suffix(".proof.json"))
    assert "net.proof.json is the proof of another program, 'net.pte'; write it again with" in refused(pte)


def test_the_same_net_with_other_weights_is_another_program(between, tmp_path):
    other = two_delegates()
    for parameter in other.parameters():
        parameter.data *= 1.5
    theirs = shipped("tosa", other, tmp_path / "theirs")
    pte = between.copied(tmp_path / "ours")
    shutil.copy(theirs.pte.with_suffix(".proof.json"), pte.with_suffix(".proof.json"))
    assert "is the proof of another program" in refused(pte)


@pytest.mark.parametrize("suffix", [".bpte", ".proof.json", ".proof.zip"])
def test_a_missing_file_is_bad_input(ethos_u, tmp_path, suffix):
    pte = ethos_u.copied(tmp_path)
    pte.with_suffix(suffix).unlink()
    assert f"net{suffix}' does not exist" in refused(pte)


def test_a_manifest_may_lie_elsewhere_with_its_bundle(between, tmp_path):
    pte = between.copied(tmp_path / "proof")
    moved = shutil.move(pte, tmp_path / "moved.pte")
    assert verify_pte(moved, manifest=pte.with_suffix(".proof.json")).good


@pytest.mark.vulkan
def test_the_program_s_own_vgf_is_run_on_vulkan(vgf):
    assert outcomes(verify_pte(vgf.pte))[VULKAN] == "passed"
