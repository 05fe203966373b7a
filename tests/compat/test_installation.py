"""While ExecuTorch is imported, no garbage is collected; the user's setting is back behind it."""

import gc

import pytest

from safe_arm._compat.installation import executorch_imported


@pytest.fixture(params=[True, False], ids=["collecting", "not collecting"])
def collects(request):
    was = gc.isenabled()
    (gc.enable if request.param else gc.disable)()
    yield request.param
    (gc.enable if was else gc.disable)()


def test_nothing_is_collected_inside_of_the_block_alone(collects):
    with executorch_imported():
        with executorch_imported():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled() is collects


def test_nor_is_the_setting_lost_with_an_error(collects):
    with pytest.raises(ValueError, match="mine"), executorch_imported():
        raise ValueError("mine")
    assert gc.isenabled() is collects
