"""ExecuTorch's log messages appear once in a partitioner's trials, and as ever everywhere else."""

import logging
import threading

import pytest
import torch
from prepared import Prepared

from safe_arm.core.errors import DemotionWarning
from safe_arm.partitioner.repeated_messages import each_message_once

LOGGER = logging.getLogger("executorch.backends.arm.test_said_once")


def test_the_same_message_once_for_each_partitioner(caplog):
    for messages in (set(), set()):
        for number in (1, 1, 2):
            with each_message_once(messages):
                LOGGER.warning("number %d", number)
    assert caplog.messages == ["number 1", "number 2"] * 2


def test_whoever_is_last_takes_the_filter_off(caplog):
    LOGGER.warning("known to logging")
    with each_message_once(set()), each_message_once(set()):
        assert LOGGER.filters != []
    assert LOGGER.filters == []
    with each_message_once(set()):
        assert LOGGER.filters != []
    assert LOGGER.filters == []


def test_outside_in_other_threads_and_of_other_loggers_nothing_changes(caplog):
    with each_message_once(set()):
        other = threading.Thread(target=lambda: [LOGGER.warning("there") for _ in range(2)])
        other.start()
        other.join()
        for _ in range(2):
            logging.getLogger("mine").warning("mine")
    for _ in range(2):
        LOGGER.warning("after")
    assert caplog.messages == ["there", "there", "mine", "mine", "after", "after"]


def test_trials_that_repeat_an_operator_do_not_repeat_its_warning(caplog):
    net = Prepared(lambda m, x: torch.sigmoid((torch.sigmoid(x).to(torch.int16) + 3).float()), "TOSA-1.0+INT+FP")
    partitioner = net.partitioner(verify=False)
    with pytest.warns(DemotionWarning):
        partitioner.partition(net.program())
    assert partitioner.report.trials > 1
    casts = [message for message in caplog.messages if "Casting buffer" in message]
    assert casts
    assert len(casts) == len(set(casts))
