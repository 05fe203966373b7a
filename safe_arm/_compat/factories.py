"""The two factories that ExecuTorch's own Arm scripts and recipes get partitioner and quantiser from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from executorch.backends.arm.util import _factory
from torch._ops import OpOverload
from torchao.quantization.pt2e.quantizer import Quantizer

from safe_arm._compat.release_1_4 import with_flags_read
from safe_arm._compat.upstream import ArmCompileSpec, TOSAPartitioner


@contextmanager
def filtered(
    partitioner: Callable[[TOSAPartitioner], TOSAPartitioner],
    quantizer: Callable[[Quantizer], Quantizer],
) -> Iterator[None]:
    """Put the results of both factories through a function each, for whoever imports them while the block runs.

    Args:
        partitioner: replaces the result of ``create_partitioner``.
        quantizer: replaces the result of ``create_quantizer``.
    """
    create_partitioner = _factory.create_partitioner
    create_quantizer = _factory.create_quantizer
    _factory.create_partitioner = lambda *a, **k: partitioner(
        create_partitioner(*a, **k)
    )
    _factory.create_quantizer = lambda *a, **k: quantizer(create_quantizer(*a, **k))
    try:
        yield
    finally:
        _factory.create_partitioner = create_partitioner
        _factory.create_quantizer = create_quantizer


def compile_spec_of(partitioner: TOSAPartitioner) -> ArmCompileSpec:
    """Return the compile spec a stock partitioner was made with; before 1.5 it keeps only the serialised one."""
    if spec := getattr(partitioner, "compile_spec", None):
        return spec
    specs = partitioner.delegation_spec.compile_specs
    return with_flags_read(_factory.parse_compile_spec(specs))


def custom_ops_of(partitioner: TOSAPartitioner) -> frozenset[OpOverload]:
    """Return the operators registered with ``register_custom_partition_op``."""
    return frozenset(getattr(partitioner, "_custom_partition_ops", ()))
