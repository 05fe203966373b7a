"""A net with state, written and read by a rule of one line."""

import torch
from small import Built


def stateful(rule):
    rows = {"state": torch.zeros(1, 4), "first_row": torch.zeros(1, 4), "rows": torch.zeros(4, 4)}
    numbers = {"calls": torch.zeros((), dtype=torch.int64), "flag": torch.tensor([True]), "level": torch.tensor(0.25)}
    return Built(rule, **rows, **numbers)


def assigned(m, x):
    y = x * 0.5
    m.state = m.state * 0.75 + y
    return m.state + y
