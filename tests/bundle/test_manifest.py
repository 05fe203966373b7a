"""The manifest: its schema, what is read back, and what is refused."""

import json

import pytest
from schemas import check_document

from safe_arm.bundle.manifest import read_manifest
from safe_arm.core.errors import UsageError


@pytest.mark.parametrize("bundle", ["between", "alone", "ethos_u", "vgf"])
def test_it_is_as_the_schema_says_and_read_back_as_it_was(bundle, request):
    shipped = request.getfixturevalue(bundle)
    path = shipped.pte.with_suffix(".proof.json")
    check_document(json.loads(path.read_text()), "bundle/proof")
    again = read_manifest(path)
    assert again.rendered() == path.read_bytes()
    assert again.delegates == shipped.manifest.delegates
    assert again.methods == shipped.manifest.methods
    assert again.verifications == shipped.manifest.verifications


CHANGES = {
    "no version": (lambda proof: proof.pop("schema_version"), "is no proof manifest (KeyError)"),
    "a later version": (lambda proof: proof.update(schema_version=2), "has schema version 2, this safe-arm reads 1"),
    "a part missing": (lambda proof: proof.pop("methods"), "proof manifest has to be (KeyError: 'methods')"),
    "a part too many": (lambda proof: proof.update(more=1), "is not as a proof manifest has to be (KeyError: 'more')"),
    "a number": (lambda proof: proof.update(program=3), "is not as a proof manifest has to be (TypeError"),
    "an unknown field": (lambda proof: proof["delegates"][0].update(colour="red"), "has to be (KeyError: 'colour')"),
    "a proof without a field": (lambda proof: proof["verifications"][0].pop("ties"), "has to be (KeyError: 'ties')"),
    "no comparison": (lambda proof: proof.update(float_comparisons=[3]), "as a proof manifest has to be (TypeError"),
}


@pytest.mark.parametrize(("change", "problem"), CHANGES.values(), ids=CHANGES)
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
