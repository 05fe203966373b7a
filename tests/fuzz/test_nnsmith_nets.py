"""NNSmith's nets are cases like any other: written out, they run without it."""

import pytest

from tests.fuzz.nnsmith_nets import numbered
from tests.fuzz.toolchain import built


@pytest.mark.filterwarnings("ignore")
def test_nnsmith_gives_nets_that_run():
    pytest.importorskip("nnsmith")
    cases = dict(numbered(1, 4))
    assert len(cases) > 1
    for case in cases.values():
        assert "torch.ops.aten" in case.source
        built(case)
