"""Shell completion knows targets, profiles and policies, and costs no torch; amounts of memory have units."""

import pytest
from click.shell_completion import ShellComplete
from interpreter import python

from safe_arm.cli.main import cli
from safe_arm.cli.option_types import Bytes
from safe_arm.cli.targets import POLICIES, PROFILE_NAMES, TARGETS
from safe_arm.core.errors import UsageError


def completions(arguments, incomplete):
    shell = ShellComplete(cli, {}, "safe-arm", "_SAFE_ARM_COMPLETE")
    return [item.value for item in shell.get_completions(arguments, incomplete)]


@pytest.mark.parametrize(
    ("arguments", "incomplete", "found"),
    [
        (["export", "--target"], "", TARGETS),
        (["check", "--target"], "ethos-u65", ("ethos-u65-256", "ethos-u65-512")),
        (["doctor", "--target"], "v", ("vgf",)),
        (["repro", "--profile"], "", (*PROFILE_NAMES, "TOSA-1.0+INT+FP+int16")),
        (["run", "--non-fuseable"], "", POLICIES),
        (["export", "--activations"], "1", ("16",)),
        (["export", "--io"], "", ("float", "int8")),
        ([], "ch", ("check",)),
    ],
)
def test_what_is_completed(arguments, incomplete, found):
    assert completions(arguments, incomplete) == list(found)


def test_the_options_are_completed():
    assert {"--target", "--keep-float", "--isolated"} <= set(completions(["export"], "--"))


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_gets_its_script_and_its_words(shell, tmp_path):
    """In a directory whose pyproject.toml is broken, too."""
    (tmp_path / "pyproject.toml").write_text("= broken")
    words = {"COMP_WORDS": "safe-arm export --target eth", "COMP_CWORD": "3" if shell != "fish" else "eth"}

    def asked(kind, **more):
        code = "import sys; from safe_arm.cli.main import main; sys.argv = ['safe-arm']; main()"
        done = python("-c", code, cwd=tmp_path, _SAFE_ARM_COMPLETE=f"{shell}_{kind}", **more)
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        return done.stdout

    if shell != "bash":  # which asks the installed bash for its version
        assert "_SAFE_ARM_COMPLETE" in asked("source")
    assert "ethos-u55-128" in asked("complete", **words)


@pytest.mark.parametrize(
    ("text", "number"),
    [("524288", 524288), ("512K", 524288), ("512 KiB", 524288), ("0.5m", 524288), ("1G", 2**30), ("0", 0), ("12B", 12)],
)
def test_an_amount_of_memory(text, number):
    assert Bytes("--max-sram").convert(text, None, None) == number


@pytest.mark.parametrize("text", ["", "K", "-1", "1T", "1e3", "half a meg"])
def test_what_is_none(text):
    with pytest.raises(UsageError, match=r"--max-sram .* is no amount of memory; give bytes, or KiB as in 512K"):
        Bytes("--max-sram").convert(text, None, None)
