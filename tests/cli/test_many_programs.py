"""``safe-arm check`` and ``export`` of many programs: a row each, and the same as one by one."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from command_line import invoke as run
from command_line import refused
from job_rows import files_of, rows_of

from safe_arm.cli import many_programs

ROOT = Path(__file__).parents[2]


@pytest.fixture
def models(conv_relu_cat, tmp_path, monkeypatch):
    """A directory with three copies of a program, their data, and a file that is no program."""
    model, data = conv_relu_cat
    for name in ("a", "b", "c"):
        for source in (model, data):
            (tmp_path / "models").mkdir(exist_ok=True)
            shutil.copy(source, tmp_path / "models" / f"{name}{source.suffix}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"])))
    return Path("models")


def check(models, *more, targets=("tosa", "ethos-u55-128"), data="models"):
    named = [f"--target={each}" for each in targets]
    return run("check", models / "*.pt2", *named, f"--calibrate={data}", *more)


def test_three_programs_for_two_targets_are_six_rows_and_go_on_where_they_stopped(models):
    (models / "d.pt2").write_text("no program")
    first = check(models, "--jobs=2", "--no-verify")
    assert first.exit_code == 1, (first.stderr, first.exception)
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
    assert again.exit_code == 0, (again.stderr, again.exception)
    assert "6 of 8 are in" in again.stderr
    assert "check 2 of 8, 2 at a time" in again.stderr
    printed = [json.loads(line) for line in again.stdout.splitlines()]
    assert [row["labels"]["program"] for row in printed] == ["a", "a", "b", "b", "c", "c", "e", "e"]
    assert all(row == good[row["name"]] for row in printed[:6])


def test_an_export_writes_what_one_of_each_writes(models):
    result = run(
        "export", models / "a.pt2", "--target=tosa", "--profile=TOSA-1.0+INT", "--profile=TOSA-1.0+FP", "-o", "out",
        "--calibrate=models/a.npz", "--no-verify", "--jobs=2",
    )  # fmt: skip
    assert result.exit_code == 0, (result.stderr, result.exception)
    rows = rows_of(Path("out"))
    assert sorted(files_of(rows)) == ["a-tosa-TOSA-1.0+FP.pte", "a-tosa-TOSA-1.0+INT.pte"]
    for profile in ("TOSA-1.0+INT", "TOSA-1.0+FP"):
        single = run(
            "export", models / "a.pt2", "--target=tosa", f"--profile={profile}", "--calibrate=models/a.npz",
            "--no-verify", "-o", "single.pte",
        )  # fmt: skip
        assert single.exit_code == 0, single.stderr
        assert Path("single.pte").read_bytes() == Path(f"out/a-tosa-{profile}.pte").read_bytes()
        (row,) = (row for row in rows if row["labels"]["profile"] == profile)
        assert row["figures"]["operators_delegated"] == (2 if "INT" in profile else 4)
        assert row["figures"]["operators"] == 4


def test_an_interrupt_says_where_to_go_on_and_leaves_nothing_running(models):
    arguments = ["check", "models/*.pt2", "--target=tosa", "--target=vgf", "--calibrate=models", "--jobs=1"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "SAFE_ARM_TEST_OF": str(models.absolute())}
    process = subprocess.Popen(
        [sys.executable, "-m", "safe_arm", *arguments], env=environment, stderr=subprocess.PIPE, text=True
    )
    rows = Path("safe-arm-check") / "rows.jsonl"
    while not rows.exists() or not rows.read_text():
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, words = process.communicate(timeout=60)
    assert process.returncode == 130
    written = len(rows.read_text().splitlines())
    last = words.splitlines()[-1]
    assert last == f"Interrupted; {written} of 6 rows are in safe-arm-check/rows.jsonl; the same command goes on there."
    deadline = time.monotonic() + 20
    while running_with(environment["SAFE_ARM_TEST_OF"]) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert running_with(environment["SAFE_ARM_TEST_OF"]) == []


def running_with(marker):
    """The processes, zombies left out, that were started with this in their environment."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if marker.encode() in (folder / "environ").read_bytes():
                found.append(folder.name)
        except OSError:
            continue
    return found


def arguments_of(monkeypatch, *line):
    """The command lines of the jobs that a command line would start."""
    found = []

    def rows(ctx, jobs, results):
        found.extend(job.arguments for job in jobs)
        ctx.exit(0)

    monkeypatch.setattr(many_programs, "_rows", rows)
    result = run(*line)
    assert not isinstance(result.exception, Exception), result.exception
    return found, result


def test_a_job_is_given_what_the_command_line_and_the_project_say(models, monkeypatch):
    Path("pyproject.toml").write_text('[tool.safe_arm]\ntarget = "vgf"\nverify = false\nmemory-mode = "Sram_Only"\n')
    line = ["export", models / "a.pt2", models / "b.pt2", "--calibrate=models", "--keep-float=first", "-o", "out"]
    (first, second), _ = arguments_of(monkeypatch, *line, "--repro-dir=r", "--target=vgf", "--allow-empty")
    assert first == (
        "export", "models/a.pt2", "--isolated", "--target=vgf", "--non-fuseable=reject", "--calibrate=models/a.npz",
        "--keep-float=first", "--no-verify", "--report=out/a-vgf.html", "--report=out/a-vgf.json",
        "--output=out/a-vgf.pte", "--repro-dir=out/a-vgf-repros", "--allow-empty",
    )  # fmt: skip
    assert second[:2] == ("export", "models/b.pt2")
    (ethos, *_), _ = arguments_of(monkeypatch, *line, "--target=ethos-u55-128")
    assert "--memory-mode=Sram_Only" in ethos


def test_each_job_has_a_baseline_of_its_own(models, monkeypatch):
    jobs = []
    monkeypatch.setattr(many_programs, "_rows", lambda ctx, given, results: jobs.extend(given) or ctx.exit(0))
    for more in ((), ("--update",)):
        result = check(models, "--against=baselines", *more, data="random")
        assert (result.exit_code, result.stderr) == (0, ""), result.exception
    gate = ["--against=baselines/a-tosa.json", "--update"]
    assert [word for word in jobs[0].arguments if "against" in word or "update" in word] == gate[:1]
    assert [word for word in jobs[6].arguments if "against" in word or "update" in word] == gate
    assert Path("baselines/a-tosa.json") in jobs[0].inputs
    assert Path("baselines").is_dir()


def test_what_is_worse_is_a_row_that_failed(models):
    for name in "bc":
        (models / f"{name}.pt2").unlink()
    arguments = ("--against=baselines", "--no-verify", "--results=results")
    first = check(models, *arguments, "--update", targets=("tosa",))
    assert first.exit_code == 0, (first.stderr, first.exception)
    baseline = Path("baselines/a-tosa.json")
    document = json.loads(baseline.read_text())
    document["figures"]["refused"] = 1
    baseline.write_text(json.dumps(document))
    second = check(models, *arguments, targets=("tosa",))
    assert second.exit_code == 1
    (row,) = rows_of(Path("results"))
    assert row["figures"]["worse"] == 1
    assert "worse than 'baselines/a-tosa.json'" in row["error"]
    assert second.stdout.splitlines()[1].split()[-3:] == ["1", f"{row['seconds']:.1f}", "worse"]


def test_a_quantised_program_is_given_no_calibration(models, monkeypatch):
    monkeypatch.setattr(many_programs, "_is_quantised", lambda path: path.stem == "a")
    (first, second, _), _ = arguments_of(
        monkeypatch, "check", models / "*.pt2", "--target=tosa", "--calibrate=random", "--per-tensor"
    )
    assert not {"--calibrate=random", "--per-tensor"} & set(first)
    assert {"--calibrate=random", "--per-tensor"} < set(second)


def test_policies_are_rows_of_their_own(models, monkeypatch):
    found, _ = arguments_of(
        monkeypatch, "check", models / "a.pt2", "--target=tosa", "--calibrate=random", "--non-fuseable=reject",
        "--non-fuseable=propagate", "--results=r",
    )  # fmt: skip
    assert [line[6] for line in found] == ["--report=r/a-tosa-reject.html", "--report=r/a-tosa-propagate.html"]


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (["--target=vfg"], "target 'vfg' is not known"),
        (["--jobs=0"], "--jobs"),
        (["--report=x.html"], "--report is for one program"),
        (["--verbose"], "--verbose is for one program"),
        (
            ["--against=models/a.npz"],
            "--against 'models/a.npz' is no directory that can be made (File exists)",
        ),
        (["--activations=16"], "--activations 16 needs the int16 extension"),
        (["--results=models/a.npz"], "--results 'models/a.npz' is no directory that can be made (File exists)"),
        (["--results=no/where"], "--results 'no/where' is no directory that can be made (No such file or directory)"),
        (["none/*.pt2"], "no file matches 'none/*.pt2'"),
    ],
)
def test_what_no_job_could_do_is_one_line(models, more, says):
    refused(check(models, *more, targets=("tosa", "vgf")), says)
    assert not Path("safe-arm-check").exists()


def test_the_output_of_several_exports_is_a_directory(models):
    result = run("export", models / "*.pt2", "--target=tosa", "--calibrate=models", "-o", "models/a.npz")
    assert result.exit_code == 2
    assert "it is a directory: give another -o" in result.stderr
    result = run("export", models / "*.pt2", "--target=tosa", "--calibrate=models", "-o", "out.pte")
    assert (result.exit_code, Path("out.pte").exists()) == (2, False)
    assert "-o 'out.pte' is the name of a file; of several programs or targets, give a directory" in result.stderr


def test_one_program_for_one_target_is_as_ever(models):
    result = run("check", models / "a.pt2", "--target=tosa", "--calibrate=random", "--no-verify")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.startswith("models/a.pt2: tosa, ")
    assert not Path("safe-arm-check").exists()


def test_two_programs_are_tuned_at_a_time_each_with_a_recipe_and_a_page(models):
    (models / "c.pt2").unlink()
    result = run(
        "tune", models / "*.pt2", "--target=tosa", "--profile=TOSA-1.0+INT", "--calibrate=models", "-o", "recipes",
        "--min-sqnr=10", "--jobs=2",
    )  # fmt: skip
    assert result.exit_code == 0, (result.stderr, result.stdout, result.exception)
    folder = Path("recipes")
    rows = sorted(rows_of(folder), key=lambda row: row["name"])
    assert [row["name"] for row in rows] == ["a-tosa", "b-tosa"]
    assert all(row["figures"]["reached"] and row["figures"]["value"] > 10 for row in rows)
    recipes = [json.loads((folder / f"{row['name']}.json").read_text()) for row in rows]
    assert recipes[0]["measured"] == recipes[1]["measured"]
    assert all((folder / f"{row['name']}.html").exists() for row in rows)
    assert all(column in result.stdout for column in ("metric", "wanted", "cost"))


@pytest.mark.parametrize("option", ["--front=f.html", "-o=r.json"])
def test_what_is_of_one_recipe_is_refused_for_several(models, option):
    arguments = ["--target=tosa", "--calibrate=models", "--min-sqnr=10", option]
    result = run("tune", models / "*.pt2", *arguments, *(() if option.startswith("-o") else ("-o", "recipes")))
    assert result.exit_code == 2
    assert "several" in result.stderr or "for one program" in result.stderr
