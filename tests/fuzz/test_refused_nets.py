"""What must be refused ends in a fallback with a reason or in a clear error, in every profile."""

import pytest

from tests.fuzz.bad_input import CONFIGS, NETS, bad_case
from tests.fuzz.properties import run


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("name", NETS)
def test_a_fallback_with_a_reason_or_a_clear_error(name, config):
    outcome = run(bad_case(name, config))
    assert outcome.verdict in ("right", "refused"), outcome
    if outcome.verdict == "refused":
        assert outcome.detail.startswith("UsageError: "), outcome
