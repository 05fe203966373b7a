"""``safe-arm export`` end to end, with the real converter and Vela."""

import re
from pathlib import Path

import faults
import numpy as np
import planting
import pytest
import torch
from small import Built, image

from safe_arm._compat.upstream import EthosUCompileSpec
from safe_arm.cli import pipeline, targets
from safe_arm.cli.output_file import write_output
from safe_arm.core.errors import UsageError
from safe_arm.partitioner.checks import POLICIES

SUMMARY_OF_REJECT = (
    r"(?s).*: {target}(?: \([^)]*\))?, TOSA-1\.0\+INT\S*, --non-fuseable reject\n"
    r"(float net       .*\n)?"
    r"verified        1 of 1 delegate against the quantised graph: exact\n"
    r"tried           6 sets of inputs in the reference model \(\d+\.\d s\)\n"
    r"delegates       1\n"
    r"operators       2 of 4 delegated\n"
    r"MACs            18\.2 % delegated\n"
    r"not delegated   2 operators\n"
    r"  refused: relu cannot be fused: its lower bound 0 has code .* \[S1\]\n"
    r"  costs: 81\.8 % of the MACs \([\d,]+\)\n"
    r"  to do: export with --non-fuseable best \(non_fuseable=\"best\"\), which keeps the clamp\n"
    r"    aten_convolution_default  Conv2d first \(aten::convolution\)  conftest\.py:\d+  return self\.last\(.*\n"
    r"    aten_relu_default         aten::relu +conftest\.py:\d+  return self\.last\(.*\n"
    r"`--non-fuseable best` would delegate the refused island\n"
)


def is_program(path: Path) -> bool:
    return path.read_bytes()[4:8] == b"ET12"


def alone(path: Path) -> bool:
    return list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("target", ["tosa", "vgf", "ethos-u55-128", "ethos-u85-256"])
def test_reject_names_the_refused_island_and_why(files, target):
    result = files.run(target=target)
    assert is_program(files.output)
    assert alone(files.output)
    assert re.fullmatch(SUMMARY_OF_REJECT.format(target=target), result.stdout), result.stdout
    steps = result.stderr.splitlines()
    assert [step.split()[0] for step in steps] == ["load", "calibrate", "lower", "write"], result.stderr


def test_codes_that_are_off_can_be_accepted(files):
    """The inputs of the cat are swapped, which is as many codes off as there are."""
    swapped = planting.arg(0, lambda tensors: list(tensors)[::-1], "aten::cat")
    with planting.planted("ExirToTosaPass", swapped, before=True):
        strict = files.run("--non-fuseable=propagate")
        lenient = files.run("--non-fuseable=propagate", "--tolerance=255")
    measured = r"(?s)differs from the quantised graph by up to \d+ codes.*aten::cat"
    assert re.search(measured, strict.stdout), strict.stdout
    assert "operators       4 of 4 delegated" in lenient.stdout, lenient.stdout
    accepted = r"1 of 1 delegate against .*: operator by operator, each at most \d+ codes off; tolerances of "
    assert re.search(accepted + r"\S.* add up to \d+ codes at output 0, mean \d+", lenient.stdout), lenient.stdout


def test_verification_needs_the_reference_model(files, monkeypatch):
    monkeypatch.setattr("safe_arm.cli.required_tools.find_spec", lambda name: None)
    files.refuses(says="pip install tosa-tools==2026.8.0; or leave it out with --no-verify")


def test_a_long_verification_is_announced(files, monkeypatch):
    monkeypatch.setattr("safe_arm.cli.pipeline.LONG", 0.0)
    result = files.run("--non-fuseable=propagate")
    assert re.search(r"^verify a delegate of \d+ MACs, about \d+ s \(--no-verify leaves it out\)$", result.stderr, re.M)


def test_strict_fails_instead(files):
    with faults.visitor_raising("tosa.CONCAT.default"):
        result = files.run("--non-fuseable=propagate", "--strict", status=1)
    assert "cannot lower for tosa: DemotionError: aten::cat" in result.stderr
    assert "Traceback" not in result.stderr
    assert not files.output.exists()


def test_float_profile_needs_no_calibration(files):
    result = files.run("--profile=TOSA-1.0+FP", "--keep-float=first", calibrate=None)
    assert is_program(files.output)
    assert "operators       4 of 4 delegated" in result.stdout
    assert result.stderr.startswith("Note: TOSA-1.0+FP is a float profile; --keep-float is not used\n")
    assert "calibrate" not in result.stderr


@pytest.mark.parametrize("command", ["export", "check"])
def test_a_program_that_will_not_load_is_warned_of(files, tmp_path, save, command):
    model = save(Built(lambda m, x: m.conv(x).i0(), conv=torch.nn.Conv2d(4, 2, 1)), image(), tmp_path / "bessel.pt2")
    np.savez(tmp_path / "data.npz", x=np.random.default_rng(0).standard_normal((4, 1, 4, 8, 8), dtype=np.float32))
    result = files.run(command=command, model=model, calibrate=tmp_path / "data.npz")
    (warning,) = [line for line in result.stderr.splitlines() if line.startswith("Warning: ")]
    assert warning.startswith("Warning: the .pte will not load, because ")
    assert "have no kernel for aten::i0.out; link one of your own" in warning


def test_dynamic_input_is_fixed_to_the_samples_shape(files, tmp_path, save):
    batch = torch.export.Dim("batch", min=2, max=8)
    shapes = {"input": {0: batch}}
    model = save(torch.nn.ReLU(), (torch.rand(3, 4),), tmp_path / "dynamic.pt2", dynamic_shapes=shapes)
    np.savez(tmp_path / "data.npz", np.asfortranarray(np.random.default_rng(0).random((5, 2, 4)), ">f4"))
    result = files.run(model=model, calibrate=tmp_path / "data.npz")
    assert "Note: input 'input' is dynamic; it is fixed to the samples' shape (2, 4)\n" in result.stderr


class Nested(torch.nn.Module):
    def forward(self, x, pair, *, late, early):
        return x + pair["a"] * late[:, :2] - early


def test_nested_keyword_and_positional_inputs(files, tmp_path, save):
    x, late = torch.rand(1, 2), torch.rand(1, 3)
    model = save(Nested(), (x, {"a": x}), tmp_path / "nested.pt2", kwargs={"early": x, "late": late})
    names = list(torch.export.load(model).graph_signature.user_inputs)
    shapes = [(3,) if name == "late" else (2,) for name in names]
    arrays = [np.random.default_rng(0).random((4, 1, *shape), "float32") for shape in shapes]
    np.savez(tmp_path / "positional.npz", *arrays)
    np.savez(tmp_path / "named.npz", **dict(zip(names, arrays, strict=True)))
    files.run(model=model, calibrate=tmp_path / "positional.npz")
    positional = files.output.read_bytes()
    files.run(model=model, calibrate=tmp_path / "named.npz")
    assert files.output.read_bytes() == positional


@pytest.mark.parametrize(("command", "under"), [("export", ""), ("check", ", --non-fuseable reject")])
def test_failed_lowering_is_one_line_and_verbose_shows_where(files, monkeypatch, command, under):
    dying = faults.raising(IndexError("tuple index\nout of range"))
    monkeypatch.setattr(pipeline, "to_edge_transform_and_lower", dying)
    result = files.run(command=command, status=1)
    error = f"Error: cannot lower for tosa{under}: IndexError: tuple index out of range; run with -v for the traceback"
    assert result.stderr.splitlines()[-1] == error
    assert "Traceback" not in result.stderr
    assert "Traceback" in files.run("-v", command=command, status=1).stderr
    assert not list(files.output.parent.iterdir())


def test_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "net.pte"
    path.write_bytes(b"old")

    def full(file):
        file.write(b"half of")
        raise OSError(28, "No space left on device")

    with pytest.raises(UsageError, match="No space left on device; make room"):
        write_output(path, full)
    assert path.read_bytes() == b"old"
    assert alone(path)


def test_ethos_u_profiles_and_policies_are_executorchs():
    assert targets.POLICIES == POLICIES
    for target in targets.TARGETS[2:]:
        own = targets.profile_for(target, None)
        spec = EthosUCompileSpec(target).tosa_spec
        assert set(str(spec).split("+")[1:]) == set(own.parts), target
