"""The command line, run in process."""

from click.testing import CliRunner, Result

from safe_arm.cli.main import cli


def invoke(*arguments: object, status: int | None = 0, **how) -> Result:
    """Run a command of ``safe-arm`` that has to end with that exit status; with None, with any."""
    result = CliRunner().invoke(cli, [*map(str, arguments)], **how)
    assert status in (result.exit_code, None), (result.output, result.exception)
    return result


def refused(result: Result, *says: str) -> None:
    """Assert that a run ended as wrong use does: status 2, and one line that says so."""
    assert (result.exit_code, result.stdout) == (2, ""), (result.output, result.exception)
    (line,) = result.stderr.splitlines()
    assert line.startswith("Error: ")
    for text in says:
        assert text in line
