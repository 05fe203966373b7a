"""The two functions from which ExecuTorch's own Arm scripts and recipes get their partitioner and quantiser."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from executorch.backends.arm.util import _factory
from torch._ops import OpOverload
from torchao.quantization.pt2e.quantizer import Quantizer

from safe_arm._compat.upstream import ArmCompileSpec, TOSAPartitioner


@contextmanager
def filtered(
    partitioner: Callable[[TOSAPartitioner], TOSAPartitioner],
    quantizer: Callable[[Quantizer], Quantizer],
) -> Iterator[None]:
    """Put what the factories make through a function each, for whoever imports them while the block runs.

    Args:
        partitioner: takes what ``create_partitioner`` made.
        quantizer: takes what ``create_quantizer`` made.
    """
    stock = _factory.create_partitioner, _factory.create_quantizer
    _factory.create_partitioner = lambda *args, **kwargs: partitioner(
        stock[0](*args, **kwargs)
    )
    _factory.create_quantizer = lambda *args, **kwargs: quantizer(
        stock[1](*args, **kwargs)
    )
    try:
        yield
    finally:
        _factory.create_partitioner, _factory.create_quantizer = stock


def compile_spec_of(partitioner: TOSAPartitioner) -> ArmCompileSpec:
    """Return the compile spec a stock partitioner was made with; before 1.5 it keeps only the serialised one."""
    if kept := getattr(partitioner, "compile_spec", None):
        return kept
    read = _factory.parse_compile_spec(partitioner.delegation_spec.compile_specs)
    flag = getattr(read, "output_order_workaround", None)
    if isinstance(
        flag, str
    ):  # 1.4 reads a flag back as text and cannot write that: bytes(True) is one zero byte
        read.output_order_workaround = bool(flag)
    return read


def custom_ops_of(partitioner: TOSAPartitioner) -> frozenset[OpOverload]:
    """Return the operators registered with ``register_custom_partition_op``."""
    return frozenset(getattr(partitioner, "_custom_partition_ops", ()))
