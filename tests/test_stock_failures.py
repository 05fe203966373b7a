"""The corpus of natural failures is what it says: stock raises, and says what is written down, on 1.5.1."""

import pytest
from failure import STAGES, said, stock
from failures import FAILURES


@pytest.mark.corpus
@pytest.mark.parametrize("failure", [pytest.param(f, id=f.name) for f in FAILURES])
def test_stock_raises(failure):
    with pytest.raises(BaseException) as caught:
        stock(failure)
    assert not isinstance(caught.value, KeyboardInterrupt)
    assert failure.raises in said(caught.value)


def test_the_corpus_is_well_formed():
    names = [failure.name for failure in FAILURES]
    assert len(names) == len(set(names))
    assert {failure.stage for failure in FAILURES} <= set(STAGES)
    assert all(failure.culprits for failure in FAILURES)
