"""An object has attributes of its own for the time of a block, and then those that it had."""

import pytest

from safe_arm.core.context import attributes_set


class Pass:
    name = "stock's"

    def __init__(self):
        self.count = 1


def test_they_hide_the_class_s_and_go_again_whatever_happens():
    owner, other = Pass(), Pass()
    with pytest.raises(ZeroDivisionError), attributes_set(owner, name="ours", count=2):
        assert (owner.name, owner.count) == ("ours", 2)
        assert (other.name, other.count) == ("stock's", 1)
        with attributes_set(owner, count=3):
            assert (owner.name, owner.count) == ("ours", 3)
        assert owner.count == 2
        raise ZeroDivisionError
    assert vars(owner) == {"count": 1}
    assert owner.name == "stock's"
