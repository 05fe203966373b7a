"""``check --json``: one document on stdout, as its schema describes it, and the exit statuses of ``check``."""

import json

import faults
from schemas import check_document


def test_the_document_is_as_the_schemas_say(files):
    result = files.check("--json")
    document = json.loads(result.stdout)
    check_document(document, "cli/check")
    for policy, report in document["reports"].items():
        check_document(report, "report/report")
        assert report["subject"]["non_fuseable"] == policy
    assert document["recommendation"].startswith("export with --non-fuseable best: verified, 100 % of the MACs")
    assert document["comparison"]["reject"] == {
        "delegates": 1, "operators": 4, "operators_delegated": 2, "share_delegated": 2048 / 11264,
        "refused": 2, "demoted": 0, "verified": 1, "vela_cycles": None,
    }  # fmt: skip
    assert document["comparison"]["propagate"]["operators_delegated"] == 4


def test_too_little_delegated_is_status_1_and_the_document_is_whole(files):
    result = files.check("--json", "--fail-under=50", "--no-verify", "-q", status=1)
    assert json.loads(result.stdout)["comparison"]["reject"]["verified"] is None
    assert result.stderr == "Error: 18.2 % is delegated, less than --fail-under 50\n"


def test_a_demotion_is_status_1(files):
    with faults.visitor_raising("tosa.CONCAT.default"):
        result = files.check("--json", "--non-fuseable=propagate", "--no-verify", status=1)
    assert json.loads(result.stdout)["comparison"]["propagate"]["demoted"] == 1
