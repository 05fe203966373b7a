"""Read back from a stock partitioner what it was constructed with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from executorch.backends.arm.util import _factory
from torch._ops import OpOverload

from safe_arm._compat.release_1_4 import with_flags_read
from safe_arm._compat.upstream import ArmCompileSpec, TOSAPartitioner


def compile_spec_of(partitioner: TOSAPartitioner) -> ArmCompileSpec:
    """Return the compile spec a stock partitioner was made with; before 1.5 it keeps only the serialised one."""
    if spec := getattr(partitioner, "compile_spec", None):
        return spec
    specs = partitioner.delegation_spec.compile_specs
    return with_flags_read(_factory.parse_compile_spec(specs))


def custom_ops_of(partitioner: TOSAPartitioner) -> frozenset[OpOverload]:
    """Return the operators registered with ``register_custom_partition_op``."""
    return frozenset(getattr(partitioner, "_custom_partition_ops", ()))


@contextmanager
def custom_ops_hidden(partitioner: TOSAPartitioner) -> Iterator[None]:
    """Let a stock partitioner know of no registered operator while the block runs; before 1.3 there are none."""
    registered: set[OpOverload] = getattr(partitioner, "_custom_partition_ops", set())
    partitioner._custom_partition_ops = set()
    try:
        yield
    finally:
        partitioner._custom_partition_ops = registered
