import pytest

from safe_arm.cli.option_types import Bytes
from safe_arm.core.errors import UsageError


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
