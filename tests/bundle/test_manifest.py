"""The manifest: its schema, what is read back, and what is refused."""

import json
from pathlib import Path

import jsonschema
import pytest

import safe_arm.bundle
from safe_arm.bundle.manifest import Digest, read_manifest
from safe_arm.core.errors import UsageError

SCHEMA = json.loads((Path(safe_arm.bundle.__file__).parent / "proof.schema.json").read_text())


@pytest.mark.parametrize("bundle", ["between", "alone", "ethos_u", "vgf"])
def test_it_is_as_the_schema_says_and_read_back_as_it_was(bundle, request):
    shipped = request.getfixturevalue(bundle)
    path = shipped.pte.with_suffix(".proof.json")
    jsonschema.Draft202012Validator(SCHEMA).validate(json.loads(path.read_text()))
    again = read_manifest(path)
    assert again.rendered() == path.read_bytes()
    assert again.delegates == shipped.manifest.delegates
    assert again.methods == shipped.manifest.methods
    assert again.verifications == shipped.manifest.verifications


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda proof: proof.pop("schema_version"), "is no proof manifest (KeyError)"),
        (lambda proof: proof.update(schema_version=2), "has schema version 2, this safe-arm reads 1"),
        (lambda proof: proof.pop("methods"), "is not as a proof manifest has to be (KeyError: 'methods')"),
        (lambda proof: proof.update(more=1), "is not as a proof manifest has to be (KeyError: 'more')"),
        (lambda proof: proof.update(program=3), "is not as a proof manifest has to be (TypeError"),
        (lambda proof: proof["delegates"][0].update(colour="red"), "a proof manifest has to be (KeyError: 'colour')"),
        (lambda proof: proof["verifications"][0].pop("ties"), "as a proof manifest has to be (KeyError: 'ties')"),
        (lambda proof: proof.update(float_comparisons=[3]), "is not as a proof manifest has to be (TypeError"),
    ],
    ids=[
        "no version", "a later version", "a part missing", "a part too many", "a number", "an unknown field",
        "a proof without a field", "no comparison",
    ],
)  # fmt: skip
def test_what_is_none_is_refused_in_one_line(between, tmp_path, change, problem):
    content = json.loads(between.pte.with_suffix(".proof.json").read_text())
    change(content)
    path = tmp_path / "net.proof.json"
    path.write_text(json.dumps(content))
    with pytest.raises(UsageError) as caught:
        read_manifest(path)
    assert problem in str(caught.value)
    assert str(caught.value).endswith("; write it again with safe-arm export --bundle")


@pytest.mark.parametrize("text", ["", "[]", "3", "\x00\xff"])
def test_what_is_no_json_object_is_refused(tmp_path, text):
    path = tmp_path / "net.proof.json"
    path.write_text(text)
    with pytest.raises(UsageError, match="is no proof manifest"):
        read_manifest(path)


def test_a_digest_fits_its_bytes_alone():
    digest = Digest.of("x", b"abc")
    assert digest.fits(b"abc")
    assert not digest.fits(b"abd")
