"""``safe-arm export --bundle`` and ``safe-arm verify-pte``, as a user runs them."""

import shutil
from functools import partial

import pytest
from command_line import invoke, refused

from safe_arm.bundle.manifest import BundleFiles

verify = partial(invoke, "verify-pte")


@pytest.fixture(scope="module")
def exported(conv_relu_cat, tmp_path_factory):
    """An Ethos-U program with its bundle."""
    model, data = conv_relu_cat
    pte = tmp_path_factory.mktemp("bundle") / "net.pte"
    options = [f"--calibrate={data}", "--target=ethos-u55-128", "--bundle", f"--output={pte}"]
    result = invoke("export", model, *options)
    assert [line.split()[0] for line in result.stderr.splitlines()] == ["load", "calibrate", "lower", "write", "bundle"]
    return pte


def test_the_bundle_lies_beside_the_program(exported):
    assert set(exported.parent.iterdir()) == {exported, *BundleFiles.beside(exported).written}


def test_the_program_is_the_one_without_a_bundle(exported, files):
    files.run(target="ethos-u55-128")
    assert files.output.read_bytes() == exported.read_bytes()
    assert list(files.output.parent.iterdir()) == [files.output]


def test_every_step_is_a_line(exported):
    result = verify(exported)
    lines = result.stdout.splitlines()
    recorded = [line for line in lines if line.startswith("recorded ")]
    assert "recorded verified: 1 of 1 delegate against the quantised graph: exact" in recorded
    lines = [line for line in lines if line not in recorded]
    assert lines[0].startswith("passed   hashes: the program, 1 delegate, 4 weights, 6 bundled cases")
    assert lines[1].startswith("passed   forward:tag0 compiled again by Vela: the same ")
    assert lines[2].startswith("passed   forward in the TOSA reference model and ExecuTorch's runtime: 6 cases, ")
    assert len(lines) == 3


def copied(exported, folder):
    shutil.copytree(exported.parent, folder, dirs_exist_ok=True)
    return folder / exported.name


def test_what_differs_is_status_1_and_one_line_when_quiet(exported, tmp_path):
    pte = copied(exported, tmp_path)
    content = bytearray(pte.read_bytes())
    content[bytes(content).index(b"vela_bin_stream") + 64] ^= 1
    pte.write_bytes(content)
    result = verify(pte, "--quiet", status=1)
    assert result.stdout == "failed   forward:tag0: the delegate (EthosUBackend) is not the one that was proven\n"


def test_bad_input_is_status_2_and_one_line(exported, tmp_path):
    pte = copied(exported, tmp_path)
    pte.with_suffix(".proof.json").write_text("{}")
    for path in (pte, exported.with_suffix(".bpte")):
        refused(verify(path, status=2))
    refused(verify("no.pte", status=2), "program 'no.pte' does not exist; give a .pte of safe-arm export --bundle")


def test_two_files_of_one_name_are_refused(files):
    files.refuses("--bundle", report=files.output.with_suffix(".proof.json"), says="is given twice")
