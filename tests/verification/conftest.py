"""One small net, lowered once for all tests that change nothing of it."""

import pytest


@pytest.fixture(scope="session")
def small():
    """A sigmoid of a convolution: its quantised graph, the lowered program and what is to be proven."""
    from proving import small_net  # It imports ExecuTorch, which some tests here do without.

    return small_net()


@pytest.fixture
def delegate(small):
    """What a verifying partitioner proves of the small net."""
    return small.delegate
