"""After a lowering nothing of it is held but the report, and a partitioner begins anew with every program."""

import gc
import logging

import faults
import pytest
import torch
from lowering import PROFILES, lower, quantize, tosa
from small import Lambda, image

from safe_arm import SafeArmPartitioner
from safe_arm.core.errors import DemotionWarning
from safe_arm.core.partitioning_record import current_partitioning
from safe_arm.partitioner.lowering import Cut, Lowered
from safe_arm.partitioner.session import Session
from safe_arm.partitioner.trials import Trials

NET = Lambda(lambda m, x: m.conv_b(torch.tanh(m.conv(x))))


def alive():
    """Return what a lowering works with and is in memory, by identity; fixtures of other modules may hold some."""
    gc.collect()
    kinds = (Cut, Lowered, Session, Trials)
    return {id(each): type(each).__name__ for each in gc.get_objects() if isinstance(each, kinds)}


def test_neither_trials_nor_what_they_made():
    before, record = alive(), current_partitioning()
    partitioner = SafeArmPartitioner(tosa(PROFILES[0]), verify=True)
    with faults.pass_raising_for("aten::tanh"), pytest.warns(DemotionWarning):
        manager = lower(quantize(NET, image(), tosa(PROFILES[0])), image(), partitioner)
    assert partitioner.report.trials > 1
    assert alive().items() <= before.items()
    assert current_partitioning() is record
    assert manager is not None


def test_no_logger_keeps_a_filter():
    def filters():
        loggers = map(logging.getLogger, list(logging.root.manager.loggerDict))
        return [(logger.name, each) for logger in loggers for each in logger.filters]

    before = filters()
    lower(quantize(NET, image(), tosa(PROFILES[0])), image(), SafeArmPartitioner(tosa(PROFILES[0])))
    assert filters() == before
