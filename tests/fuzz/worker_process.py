"""A process that runs cases: it imports once, takes many, and is killed when one takes too long."""

import logging
import multiprocessing
import os
import time
import warnings
from multiprocessing.connection import Connection

from tests.fuzz.cases import Case
from tests.fuzz.outcome import Outcome

#: After so many requests a process is replaced.
REQUESTS = 300
#: Seconds that a new process has to import everything.
_START = 300.0


def answer(kind: str, case: Case) -> Outcome:
    """Run a case in this process, under ``ours`` or ``stock``."""
    from tests.fuzz import properties, toolchain

    return properties.run(case) if kind == "ours" else toolchain.through_stock(case)


def _serve(connection: Connection) -> None:
    os.environ["OMP_NUM_THREADS"] = "1"
    os.environ["SAFE_ARM_PROOF_CACHE"] = "0"
    null = os.open(os.devnull, os.O_WRONLY)  # the tools print
    os.dup2(null, 1)
    os.dup2(null, 2)
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    import torch

    from tests.fuzz import properties  # noqa: F401

    torch.set_num_threads(1)
    connection.send(None)
    while (request := connection.recv()) is not None:
        kind, text = request
        connection.send(answer(kind, Case.from_json(text)))


class Worker:
    """One process at a time, started when it is needed; a case may take it so many seconds."""

    def __init__(self, limit: float = 120.0) -> None:
        self._limit, self._left = limit, 0
        self._process: multiprocessing.process.BaseProcess | None = None
        self._connection: Connection | None = None

    def run(self, kind: str, case: Case) -> Outcome:
        """Return what came of a case; that the process died or took too long is an outcome as well."""
        began = time.perf_counter()
        if not self._left:
            self.close()
            self._start()
        self._left -= 1
        try:
            self._connection.send((kind, case.to_json()))
            if self._connection.poll(self._limit):
                return self._connection.recv()
            outcome = Outcome("slow", "run", f"more than {self._limit:.0f} s")
        except (EOFError, OSError):
            self._process.join(10)
            outcome = Outcome("died", "run", f"the process ended with {self._process.exitcode}")
        outcome.seconds = {"run": round(time.perf_counter() - began, 1)}
        self.close()
        return outcome

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._connection.close()
        self._process, self._left = None, 0

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()
        if not self._connection.poll(_START):
            raise TimeoutError(f"a worker did not start in {_START:.0f} s")
        self._connection.recv()
        self._left = REQUESTS
