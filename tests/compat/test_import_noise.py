"""Importing safe_arm's names prints nothing of what torchao and torch log about themselves; all else is logged."""

import logging

import pytest
from interpreter import python

from safe_arm._compat.import_noise import NOISE, import_noise_left_out


def test_a_script_that_imports_the_classes_prints_nothing():
    done = python("-c", "from safe_arm import SafeArmPartitioner, SafeVgfQuantizer")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize(("name", "noise"), NOISE.items())
def test_only_what_is_known_is_left_out_and_only_in_the_block(caplog, name, noise):
    logger = logging.getLogger(name)
    filters = list(logger.filters)
    with import_noise_left_out():
        logger.warning("%s x", noise)
        logger.warning("something else")
        logging.getLogger("another").warning(noise)
    logger.warning(noise)
    assert caplog.messages == ["something else", noise, noise]
    assert logger.filters == filters


def test_it_ends_with_an_error_too():
    logger = logging.getLogger("torchao")
    filters = list(logger.filters)
    with pytest.raises(ImportError), import_noise_left_out():
        raise ImportError
    assert logger.filters == filters
