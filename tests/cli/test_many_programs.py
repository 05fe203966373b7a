"""``safe-arm check`` and ``export`` of many programs: a row each, and the same as one by one."""

import json
import shutil
from pathlib import Path

import pytest
from command_line import invoke as run
from command_line import refused
from spying import raising

from safe_arm.cli import many_programs


def rows_of(folder):
    """The rows in a directory of results, in the order they were written."""
    return [json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()]


def files_of(rows, suffix=".pte"):
    """The digests of the programs that rows list, by name."""
    return {name: sha for row in rows for name, sha in row["files"].items() if name.endswith(suffix)}


@pytest.fixture
def models(conv_relu_cat, tmp_path, monkeypatch):
    """A directory with three copies of a program, their data, and a file that is no program."""
    model, data = conv_relu_cat
    (tmp_path / "models").mkdir()
    for name in ("a", "b", "c"):
        for source in (model, data):
            shutil.copy(source, tmp_path / "models" / f"{name}{source.suffix}")
    monkeypatch.chdir(tmp_path)
    return Path("models")


def check(models, *more, targets=("tosa", "ethos-u55-128"), status=0):
    named = [f"--target={each}" for each in targets]
    return run("check", models / "*.pt2", *named, "--calibrate=models", *more, status=status)


def test_three_programs_for_two_targets_are_six_rows_and_go_on_where_they_stopped(models):
    (models / "d.pt2").write_text("no program")
    first = check(models, "--jobs=2", "--no-verify", status=1)
    assert "8 rows: 6 with a result, 2 failed" in first.stdout
    assert "d-tosa: model 'models/d.pt2' is not a zip archive" in first.stdout
    folder = Path("safe-arm-check")
    rows = rows_of(folder)
    good = {row["name"]: row for row in rows if row["result"]}
    assert sorted(good) == [f"{program}-{target}" for program in "abc" for target in ("ethos-u55-128", "tosa")]
    assert {row["figures"]["operators_delegated"] for row in good.values()} == {2}
    assert all(20 < row["figures"]["sqnr_db"] < 60 for row in good.values())
    page = (folder / "index.html").read_text()
    assert page.count("<tr") == 9
    assert all((folder / f"{name}.html").exists() and f'href="{name}.html"' in page for name in good)
    assert json.loads((folder / "a-tosa.json").read_text())["model"] == "models/a.pt2"

    (models / "d.pt2").unlink()
    shutil.copy(models / "a.pt2", models / "e.pt2")
    shutil.copy(models / "a.npz", models / "e.npz")
    again = check(models, "--jobs=2", "--no-verify", "--json")
    assert "6 of 8 are in" in again.stderr
    assert "check 2 of 8, 2 at a time" in again.stderr
    printed = [json.loads(line) for line in again.stdout.splitlines()]
    assert [row["labels"]["program"] for row in printed] == ["a", "a", "b", "b", "c", "c", "e", "e"]
    assert all(row == good[row["name"]] for row in printed[:6])


def test_an_export_writes_what_one_of_each_writes(models):
    line = ["export", models / "a.pt2", "--target=tosa", "--calibrate=models/a.npz", "--no-verify"]
    run(*line, "--profile=TOSA-1.0+INT", "--profile=TOSA-1.0+FP", "-o", "out", "--jobs=2")
    rows = rows_of(Path("out"))
    assert sorted(files_of(rows)) == ["a-tosa-TOSA-1.0+FP.pte", "a-tosa-TOSA-1.0+INT.pte"]
    for profile in ("TOSA-1.0+INT", "TOSA-1.0+FP"):
        run(*line, f"--profile={profile}", "-o", "single.pte")
        assert Path("single.pte").read_bytes() == Path(f"out/a-tosa-{profile}.pte").read_bytes()
        (row,) = (row for row in rows if row["labels"]["profile"] == profile)
        assert row["figures"]["operators_delegated"] == (2 if "INT" in profile else 4)
        assert row["figures"]["operators"] == 4


def test_an_interrupt_says_where_to_go_on(models, monkeypatch):
    interrupted = (raising(KeyboardInterrupt)() for _ in "a")
    monkeypatch.setattr("safe_arm.jobs.job_processes.run_jobs", lambda *_: interrupted)
    result = check(models, status=130)
    rows = "0 of 6 rows are in safe-arm-check/rows.jsonl"
    assert result.stderr.splitlines()[-1] == f"Interrupted; {rows}; the same command goes on there."


@pytest.fixture
def jobs_of(monkeypatch):
    """Return the jobs that a command line would start."""

    def jobs_of(*line):
        found = []
        monkeypatch.setattr(many_programs, "_rows", lambda ctx, jobs, results: found.extend(jobs) or ctx.exit(0))
        run(*line)
        return found

    return jobs_of


def test_a_job_is_given_what_the_command_line_and_the_project_say(models, jobs_of):
    Path("pyproject.toml").write_text('[tool.safe_arm]\ntarget = "vgf"\nverify = false\nmemory-mode = "Sram_Only"\n')
    line = ["export", models / "a.pt2", models / "b.pt2", "--calibrate=models", "--keep-float=first", "-o", "out"]
    first, second = jobs_of(*line, "--repro-dir=r", "--target=vgf", "--allow-empty")
    assert first.arguments == (
        "export", "models/a.pt2", "--isolated", "--target=vgf", "--non-fuseable=reject", "--calibrate=models/a.npz",
        "--keep-float=first", "--no-verify", "--report=out/a-vgf.html", "--report=out/a-vgf.json",
        "--output=out/a-vgf.pte", "--repro-dir=out/a-vgf-repros", "--allow-empty",
    )  # fmt: skip
    assert second.arguments[:2] == ("export", "models/b.pt2")
    ethos, _ = jobs_of(*line, "--target=ethos-u55-128")
    assert "--memory-mode=Sram_Only" in ethos.arguments


@pytest.mark.parametrize("more", [[], ["--update"]])
def test_each_job_has_a_baseline_of_its_own(models, jobs_of, more):
    line = ["check", models / "*.pt2", "--target=tosa", "--target=vgf", "--calibrate=random", "--against=baselines"]
    job, *_ = jobs_of(*line, *more)
    gate = [word for word in job.arguments if "against" in word or "update" in word]
    assert gate == ["--against=baselines/a-tosa.json", *more]
    assert Path("baselines/a-tosa.json") in job.inputs
    assert Path("baselines").is_dir()


def test_what_is_worse_is_a_row_that_failed(models):
    for name in "bc":
        (models / f"{name}.pt2").unlink()
    arguments = ("--against=baselines", "--no-verify", "--results=results")
    check(models, *arguments, "--update", targets=("tosa",))
    baseline = Path("baselines/a-tosa.json")
    document = json.loads(baseline.read_text())
    document["figures"]["refused"] = 1
    baseline.write_text(json.dumps(document))
    second = check(models, *arguments, targets=("tosa",), status=1)
    (row,) = rows_of(Path("results"))
    assert row["figures"]["worse"] == 1
    assert "worse than 'baselines/a-tosa.json'" in row["error"]
    assert second.stdout.splitlines()[1].split()[-3:] == ["1", f"{row['seconds']:.1f}", "worse"]


def test_a_quantised_program_is_given_no_calibration(models, jobs_of, monkeypatch):
    monkeypatch.setattr(many_programs, "_is_quantised", lambda path: path.stem == "a")
    first, second, _ = jobs_of("check", models / "*.pt2", "--target=tosa", "--calibrate=random", "--per-tensor")
    assert not {"--calibrate=random", "--per-tensor"} & set(first.arguments)
    assert {"--calibrate=random", "--per-tensor"} < set(second.arguments)


def test_policies_are_rows_of_their_own(models, jobs_of):
    line = ["check", models / "a.pt2", "--target=tosa", "--calibrate=random", "--results=r"]
    found = jobs_of(*line, "--non-fuseable=reject", "--non-fuseable=propagate")
    reports = ["--report=r/a-tosa-reject.html", "--report=r/a-tosa-propagate.html"]
    assert [job.arguments[6] for job in found] == reports


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["--target=vfg"], "target 'vfg' is not known"),
        (["--jobs=0"], "--jobs"),
        (["--report=x.html"], "--report is for one program"),
        (["--verbose"], "--verbose is for one program"),
        (["--against=models/a.npz"], "--against 'models/a.npz' cannot be created as a directory (File exists)"),
        (["--activations=16"], "--activations 16 needs the int16 extension"),
        (["--results=models/a.npz"], "--results 'models/a.npz' cannot be created as a directory (File exists)"),
        (["--results=no/where"], "--results 'no/where' cannot be created as a directory (No such file or directory)"),
        (["none/*.pt2"], "no file matches 'none/*.pt2'; give .pt2 files, or a pattern such as"),
    ],
)
def test_what_no_job_could_do_is_one_line(models, more, says):
    refused(check(models, *more, targets=("tosa", "vgf"), status=2), says)
    assert not Path("safe-arm-check").exists()


def test_the_output_of_several_exports_is_a_directory(models):
    line = ["export", models / "*.pt2", "--target=tosa", "--calibrate=models"]
    refused(run(*line, "-o", "models/a.npz", status=2), "it is a directory: give another -o")
    says = "-o 'out.pte' is the name of a file; for several programs or targets, give a directory"
    refused(run(*line, "-o", "out.pte", status=2), says)
    assert not Path("out.pte").exists()


def test_two_programs_are_tuned_at_a_time_each_with_a_recipe_and_a_page(models):
    (models / "c.pt2").unlink()
    line = ["tune", models / "*.pt2", "--target=tosa", "--profile=TOSA-1.0+INT", "--calibrate=models"]
    result = run(*line, "-o", "recipes", "--min-sqnr=10", "--jobs=2")
    folder = Path("recipes")
    rows = sorted(rows_of(folder), key=lambda row: row["name"])
    assert [row["name"] for row in rows] == ["a-tosa", "b-tosa"]
    assert all(row["figures"]["reached"] and row["figures"]["value"] > 10 for row in rows)
    recipes = [json.loads((folder / f"{row['name']}.json").read_text()) for row in rows]
    assert recipes[0]["measured"] == recipes[1]["measured"]
    assert all((folder / f"{row['name']}.html").exists() for row in rows)
    assert all(column in result.stdout for column in ("metric", "wanted", "cost"))


@pytest.mark.parametrize(
    ("options", "says"), [(["--front=f.html", "-o", "recipes"], "is for one program"), (["-o", "r.json"], "several")]
)
def test_what_is_of_one_recipe_is_refused_for_several(models, options, says):
    line = ["tune", models / "*.pt2", "--target=tosa", "--calibrate=models", "--min-sqnr=10"]
    refused(run(*line, *options, status=2), says)
