"""A row of one job: what it holds, when it still holds, and what is no row."""

import json
from dataclasses import replace

import pytest
from schemas import check_document

from safe_arm.core.processes import Ended
from safe_arm.jobs.row import JobEnded, key_of, line_of, read_rows, row_of, still_holds, write_rows

FIGURES = {"delegates": 1, "operators": 4, "operators_delegated": 2, "share_delegated": 0.5, "vela_cycles": None}


@pytest.fixture
def finished(job, tmp_path):
    (tmp_path / "in.pt2").write_bytes(b"program")
    wanted = job("check", "in.pt2", inputs=(tmp_path / "in.pt2",), files=(tmp_path / "job.html",))
    wanted.result.write_text("{}")
    (tmp_path / "job.html").write_text("page")
    return wanted, row_of(wanted, JobEnded(Ended(0, "", ""), 1.5, 1, True), FIGURES)


def test_it_is_what_the_schema_says_and_comes_back(finished, tmp_path):
    job, row = finished
    failed = row_of(job, JobEnded(Ended(2, "", "Note: this\nError: that"), 0.1, 1, False), {})
    assert (failed.error, failed.files, failed.result) == ("that", {}, False)
    for each in (row, failed):
        check_document(json.loads(line_of(each)), "jobs/row")
    assert sorted(row.files) == ["job.html", "job.json"]
    write_rows(tmp_path / "rows.jsonl", [row])
    assert read_rows(tmp_path / "rows.jsonl") == {"job": row}


def test_what_is_no_row_is_left_out(finished, tmp_path):
    _, row = finished
    good = line_of(row)
    lines = (good, good[:30], "[]", "{}", json.dumps({**json.loads(good), "name": "x", "schema_version": 0}))
    (tmp_path / "rows.jsonl").write_text("\n".join(lines))
    assert list(read_rows(tmp_path / "rows.jsonl")) == ["job"]
    assert read_rows(tmp_path / "nowhere.jsonl") == {}


def test_it_holds_until_something_changes(finished, tmp_path):
    job, row = finished
    assert still_holds(row, job)
    assert not still_holds(replace(row, result=False), job)
    assert not still_holds(row, replace(job, arguments=(*job.arguments, "--no-verify")))
    (tmp_path / "job.html").write_text("another page")
    assert not still_holds(row, job)
    (tmp_path / "job.html").write_text("page")
    assert still_holds(row, job)
    (tmp_path / "in.pt2").write_bytes(b"another program")
    assert not still_holds(row, job)


def test_another_version_of_a_tool_is_another_key(finished, monkeypatch):
    job, row = finished
    assert key_of(job) == row.key
    monkeypatch.setattr("safe_arm.jobs.row.versions", lambda: {"torch": "1.0"})
    assert key_of(job) != row.key


def test_progress_is_no_error(finished):
    job, _ = finished
    ended = JobEnded(Ended(1, "{}", "Warning: demoted\nlower for tosa"), 1.0, 1, True)
    assert row_of(job, ended, FIGURES).error == ""
    ended = JobEnded(Ended(1, "", "lower for tosa\nError: 18.2 % is delegated"), 1.0, 1, True)
    assert row_of(job, ended, FIGURES).error == "18.2 % is delegated"
    assert row_of(job, JobEnded(Ended(-9, "", ""), 0.1, 2, False), {}).error == "ended by signal 9"
