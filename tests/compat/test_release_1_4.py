"""What 1.4 writes and reads otherwise is the same value as of 1.5 on."""

from types import SimpleNamespace

import pytest

from safe_arm._compat.release_1_4 import STATES_ARE_CONSTANTS, value_bytes, with_flags_read
from safe_arm._compat.tested_releases import executorch_version, parse


def test_only_1_4_takes_states_for_constants():
    assert STATES_ARE_CONSTANTS is (parse(executorch_version()) == (1, 4))


@pytest.mark.parametrize("value", ["vgf", b"vgf", bytearray(b"vgf")])
def test_a_value_is_bytes_whatever_it_was(value):
    assert value_bytes(SimpleNamespace(value=value)) == b"vgf"


@pytest.mark.parametrize(
    ("read", "flag"), [("True", True), ("", False), (True, True), (False, False), (None, None)], ids=repr
)
def test_a_flag_that_was_read_as_text_is_a_flag(read, flag):
    assert with_flags_read(SimpleNamespace(output_order_workaround=read)).output_order_workaround is flag


def test_a_compile_spec_without_that_flag_is_handed_on():
    spec = SimpleNamespace()
    assert with_flags_read(spec) is spec
    assert vars(spec) == {}
