import pytest

from safe_arm.jobs.row import Job


@pytest.fixture
def job(tmp_path):
    """Make a job whose result is what it prints."""

    def made(*arguments, name="job", **more):
        return Job(name, arguments, tmp_path / f"{name}.json", on_stdout=True, **more)

    return made
