"""``check --json``: one document on stdout, as its schema describes it, and the exit statuses of ``check``."""

import json
from functools import partial
from importlib.resources import files as package_files

import faults
import pytest
from command_line import refused
from jsonschema import Draft202012Validator


@pytest.fixture
def check(files):
    return partial(files.check, "--json")


def schema(package, name):
    return json.loads(package_files(package).joinpath(name).read_text())


def test_the_document_is_as_the_schemas_say(check):
    result = check()
    assert result.exit_code == 0, (result.stderr, result.exception)
    document = json.loads(result.stdout)
    Draft202012Validator(schema("safe_arm.cli", "check.schema.json")).validate(document)
    for policy, report in document["reports"].items():
        Draft202012Validator(schema("safe_arm.report", "report.schema.json")).validate(report)
        assert report["subject"]["non_fuseable"] == policy
    assert document["recommendation"].startswith("export with --non-fuseable propagate: verified, 100 % of the MACs")
    assert document["comparison"]["reject"] == {
        "delegates": 1, "operators": 4, "operators_delegated": 2, "share_delegated": 2048 / 11264,
        "refused": 2, "demoted": 0, "verified": 1, "vela_cycles": None,
    }  # fmt: skip
    assert document["comparison"]["propagate"]["operators_delegated"] == 4


def test_too_little_delegated_is_status_1_and_the_document_is_whole(check):
    result = check("--fail-under=50", "--no-verify", "-q")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["comparison"]["reject"]["verified"] is None
    assert result.stderr == "Error: 18.2 % is delegated, less than --fail-under 50\n"


def test_a_demotion_is_status_1(check):
    with faults.visitor_raising("tosa.CONCAT.default"):
        result = check("--non-fuseable=propagate", "--no-verify")
    assert result.exit_code == 1, result.stderr
    assert json.loads(result.stdout)["comparison"]["propagate"]["demoted"] == 1


@pytest.mark.parametrize(
    ("option", "says"),
    [("--profile=INT", "profile 'INT' is not known"), ("-v", "--json and --verbose exclude each other")],
)
def test_wrong_use_prints_no_document(check, option, says):
    refused(check(option), says)
