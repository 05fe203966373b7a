"""Check the user's own inputs, and follow them through the eager graph to where a delegate begins."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from torch import Tensor
from torch.fx import Node
from torch.utils._pytree import tree_leaves

from safe_arm.core.errors import UsageError
from safe_arm.core.programs import Program, placeholder_values
from safe_arm.verification.concrete_sizes import UnknownSizeError, sizes_of
from safe_arm.verification.delegate import user_inputs
from safe_arm.verification.evaluation import Evaluation

Sample = tuple[Tensor, ...]
#: Types of inputs that an exported program takes only as it was exported with.
FIXED = (type(None), bool, int, float, str)


def finite(samples: Iterable[object]) -> tuple[Sample, ...]:
    """Return the tensors of each sample, which may be nested as the model takes them.

    Other values of a sample (None, numbers, strings) are fixed in an exported program, and are left out.

    Raises:
        UsageError: there are none, one is no tuple of a model's inputs, or holds a NaN or an infinity.
    """
    taken = []
    for number, sample in enumerate(samples):
        tensors = _tensors(number, sample)
        for place, tensor in enumerate(tensors):
            if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
                raise UsageError(
                    f"input {place} of sample {number} has a NaN or an infinity; remove or replace it"
                )
        taken.append(tensors)
    if not taken:
        raise UsageError(
            "there are no samples; give at least one tuple of input tensors"
        )
    return tuple(taken)


def _tensors(number: int, sample: object) -> Sample:
    """Return the tensors of a sample, in the model's order."""
    if not isinstance(sample, (tuple, list)):
        kind = type(sample).__name__
        raise UsageError(
            f"sample {number} is a {kind}; give a tuple of tensors, as the model takes"
        )
    tensors = []
    for leaf in tree_leaves(sample):
        if isinstance(leaf, Tensor):
            tensors.append(leaf)
        elif not isinstance(leaf, FIXED):
            kind = type(leaf).__name__
            raise UsageError(
                f"sample {number} holds a {kind}; give tensors, nested as the model takes them"
            )
    return tuple(tensors)


def matching(samples: Sequence[Sample], program: Program) -> Sequence[Sample]:
    """Return the samples if they fit a program's inputs.

    Args:
        samples: tuples of tensors.
        program: an exported program.

    Raises:
        UsageError: one has the wrong count, shape or dtype; the message says which is wanted.
    """
    wanted = []
    for node in user_inputs(program):
        if isinstance(node.meta.get("val"), Tensor):
            wanted.append((node.name, node.meta["val"]))
    for number, sample in enumerate(samples):
        if len(sample) != len(wanted):
            raise UsageError(
                f"sample {number} has {len(sample)} tensors; the model takes {len(wanted)}"
            )
        for tensor, (name, value) in zip(sample, wanted, strict=True):
            if not _fits(tensor, value):
                raise UsageError(
                    f"input {name!r} of sample {number} is {_described(tensor)}; the model takes {_described(value)}"
                )
        try:
            sizes_of(program, [tensor.shape for tensor in sample])
        except UnknownSizeError as error:
            raise UsageError(
                f"sample {number} has inputs that the model does not take together: {error}"
            ) from error
    return samples


def _fits(given: Tensor, value: Tensor) -> bool:
    """Tell whether a tensor has the dtype and the sizes of a value, where those are numbers."""
    if given.dtype != value.dtype or given.dim() != value.dim():
        return False
    for size, wanted in zip(given.shape, value.shape, strict=True):
        if isinstance(wanted, int) and wanted != size:
            return False
    return True


def followed(
    program: Program,
    state: Mapping[str, Tensor],
    sample: Sample,
    wanted: Sequence[Node],
) -> dict[str, Tensor]:
    """Return what some nodes of a program hold for a sample, by name; floats in double.

    Args:
        program: an exported program that is not lowered.
        state: its parameters, buffers and constants by name.
        sample: its user inputs.
        wanted: the nodes.

    Raises:
        EvaluationError: the program cannot be evaluated eagerly.
    """
    needed = _needed_for(wanted)
    nodes = [node for node in program.graph.nodes if node in needed]
    evaluation = Evaluation(placeholder_values(program, state, sample))
    evaluation.run(nodes, keep=frozenset(wanted))
    return {node.name: evaluation.values[node] for node in wanted}


def _needed_for(wanted: Iterable[Node]) -> set[Node]:
    """Return some nodes and all that they are computed of."""
    needed: set[Node] = set()
    pending = list(wanted)
    while pending:
        node = pending.pop()
        if node not in needed:
            needed.add(node)
            pending += node.all_input_nodes
    return needed


def _described(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} of shape {tuple(tensor.shape)}"
