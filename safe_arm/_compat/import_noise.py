"""Leave out what torchao and torch log about themselves while safe_arm imports them. Loads nothing."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

#: For each logger, the words of the messages that are left out: extensions for other processors, which no Arm export
#: uses, and a deprecation between torchao and torch (torch 2.13, torchao 0.18).
NOISE: Mapping[str, str] = {
    "torchao": "Failed to load",
    "torch.utils._pytree": "is an Enum subclass and is now natively supported",
}


@contextmanager
def import_noise_left_out() -> Iterator[None]:
    """Leave out these messages in the block; every other message is logged."""
    for name in NOISE:
        logging.getLogger(name).addFilter(_is_news)
    try:
        yield
    finally:
        for name in NOISE:
            logging.getLogger(name).removeFilter(_is_news)


def _is_news(record: logging.LogRecord) -> bool:
    return NOISE[record.name] not in record.getMessage()
