"""The script that follows docs/first-hour.md runs what is on the page, and sees what it does not say."""

import first_hour
import pytest

PAGE = """
Words, and `$ echo not a command`.

```console
$ cd "$(mktemp -d -p .)" && name=safe
$ echo $name \\
    and well
safe and well
```
```python title="net.py"
print("took 3.25 s")
print()
print("on torch 2.13.0")
```
```bash
echo not this either
```
```console
$ ls
$ python3 ../net.py; echo "exit status $?" >&2
took 0.1 s

on torch 2.13.0+cpu
exit status 0
```
"""


def followed(page, folder):
    steps = first_hour.steps_of(page)
    return steps, first_hour.follow(steps, folder)


def test_a_page_that_is_right_in_all_but_what_varies(tmp_path):
    steps, done = followed(PAGE, tmp_path)
    assert [step.file or step.command.partition(" ")[0] for step in steps] == ["cd", "echo", "net.py", "ls", "python3"]
    assert first_hour.differences(steps, done) == ""
    assert first_hour.rewritten(PAGE, steps, done) == PAGE


@pytest.mark.parametrize(
    ("right", "wrong", "line"),
    [
        pytest.param("safe and well\n", "safe and sound\n", "-safe and sound\n+safe and well", id="another word"),
        pytest.param("safe and well\n", "", "+safe and well", id="not told"),
        pytest.param("$ ls\n", "$ ls\nnet.py\n", "-net.py", id="not printed"),
        pytest.param("torch 2.13.0+cpu", "torch 2.14.0", "-on torch 2.14.0\n+on torch 2.13.0", id="a version"),
        pytest.param("status 0", "status 1", "-exit status 1\n+exit status 0", id="a status"),
    ],
)
def test_a_page_that_is_wrong_is_told_and_put_right(tmp_path, right, wrong, line):
    page = PAGE.replace(right, wrong)
    assert page != PAGE
    steps, done = followed(page, tmp_path)
    assert line in first_hour.differences(steps, done)
    again = first_hour.rewritten(page, steps, done)
    assert first_hour.differences(first_hour.steps_of(again), done) == ""


@pytest.mark.parametrize(("command", "status"), [("false", 1), ("exit 7", -1)], ids=["fails", "ends the shell"])
def test_a_command_that_fails_fails_the_page(tmp_path, command, status):
    with pytest.raises(SystemExit, match=f"exit status {status} of: {command}"):
        followed(f"```console\n$ {command}\n$ touch never\n```\n", tmp_path)
    assert not list(tmp_path.iterdir())


def test_the_page_s_commands_are_found_and_every_target_is_exported():
    commands = [step.command for step in first_hour.steps_of(first_hour.PAGE.read_text())]
    assert sum(command.startswith("safe-arm export") for command in commands) >= 3
    for word in ("pip install -c users.txt", "doctor", "check", "repro", "--fail-under", "best"):
        assert any(word in command for command in commands), word
