"""Reasons for people: without schemas, tracebacks and lists of passes, which the report's JSON keeps. Loads nothing."""

from __future__ import annotations

import re

#: The end of the reason for a part of an operator that is lowered whole or not at all.
TAKEN_APART = "was taken apart before the partitioner saw it"
#: Maximum number of characters of what the quantiser raised.
LONGEST = 160
_RETURNS = r"(\([^)]*\)|[\w\[\]?]+(\(\w!?\))?)"
#: Patterns of raw text, each with what stands in its place.
_RAW = (
    # An operator that upstream prints with its schema.
    (
        rf"<\w*OpOverload: [\w.]+>: schema = ([\w:]+)[\w.]*\(.*?( -> {_RETURNS}|\.\.\.$)",
        r"\1",
    ),
    (r"<\w*OpOverload: (\w+)\.(\w+)\.\w+>", r"\1::\2"),
    # The node and the traceback that torch.fx adds to an exception.
    (r" While executing %.*", ""),
    # The error of an invariant between two passes.
    (r"InvariantError: invariant '([^']+)' broken by \w+: ", r"it breaks \1: "),
    (r" \(changed before it by: [^)]*(\)|$)", ""),
    # The stock partitioner's words that name its own classes and metadata.
    (
        r"^Not included in BaseTOSASupportList.*",
        "the Arm backend cannot lower this operator",
    ),
    (
        r"^Output dtype torch\.(\w+) is not supported in dim_order_ops::_to_dim_order_copy for input dtype "
        r"torch\.(\w+)\b.*",
        r"a cast of \2 to \1 is not supported",
    ),
    (
        r"^Input dtype torch\.(\w+) is not supported in dim_order_ops::_to_dim_order_copy\.$",
        r"a cast of \1 is not supported",
    ),
    (r"^Op is not supported on U55\.$", "an Ethos-U55 does not support this operator"),
    # Sizes that are known only when the program runs.
    (
        r"^\w+::\w+\(\) Expected a value of type '\w+' for argument '(\w+)' but instead found type 'Node'.*",
        r"its argument \1 is a size that is known only at run time",
    ),
    (
        r"^Symbolic (\w+ dims|slices) unsupported|"
        r"^Node has symbolic shape arguments, has the TOSA spec shape extension support\?",
        "its sizes are known only at run time, which takes TOSA's shape extension",
    ),
    # Its check of convolutions names the dimensions in another order.
    (
        r"^Unsupported stride of (\(.*?\)) for Ethos-U55\..*",
        r"an Ethos-U55 takes a transposed convolution with strides of (1, 1) or (2, 2), of (1, 2) for one row and of "
        r"(2, 1) for one column: this has \1",
    ),
    (
        r"^HWC must be in the range \[1;65536\] but got (\d+) (\d+) (\d+)$",
        r"an Ethos-U55 takes a transposed convolution of at most 65,536 channels, rows and columns: this has \1, \2 "
        r"and \3",
    ),
    (
        r"^Kernel Height \* Kernel Width must be in the range \[1;4096\] but got (\d+)$",
        r"an Ethos-U55 takes a kernel of at most 64 rows and 4,096 elements: this has \1 elements",
    ),
    (
        r"^Depthwise convolution must have CWH <= 65536, got (\d+)\)$",
        r"an Ethos-U55 takes a convolution of at most 65,536 channels, rows and columns: this has \1",
    ),
    (
        r"^Convolution must have C <= 65536, got (\d+)\)$",
        r"an Ethos-U55 takes a convolution of at most 65,536 channels: this has \1",
    ),
    (
        r"^Convolution needs to have kernel_y<=64, kernel_x\*kernel_y<=4096, got kernel \((\d+), (\d+)\)$",
        r"an Ethos-U55 takes a kernel of at most 64 columns and 4,096 elements: this has \1 rows and \2 columns",
    ),
    (
        r"^Convolution3d needs to have kernel_z==1, got (\d+)\.$",
        r"an Ethos-U55 takes a kernel of volumes with size 1 in its last dimension: this has \1",
    ),
    (
        r"^Convolution3d only supports stride_z<=1, got (\d+)\.$",
        r"an Ethos-U55 takes a convolution of volumes with stride 1 in its last dimension: this has \1",
    ),
    (r"^Node was not marked as quantized in the Arm backend\.$", "it is not quantised"),
    (r"^One or more (input|output)s were not quantized\.$", r"an \1 is not quantised"),
    (r"^Non-constant int64 input (\w+)$", r"its input \1 is int64 and not constant"),
    (
        r"^Non-constant node with int64 output\.$",
        "its output is int64 and not constant",
    ),
    (
        r"^Was first node in partition and input (\w+) had fp dtype\.$",
        r"its input \1 is float, at the border of a delegate",
    ),
)
#: For each stage of quantising, how the text about an operator that it fails on begins.
_STAGES = {
    "transform": "the quantiser fails to transform it: ",
    "annotate": "the quantiser fails to annotate it: ",
    "observe": "",
}


def plain(reason: str) -> str:
    """Return a reason as people read it: one sentence, operators by their names."""
    for pattern, instead in _RAW:
        reason = re.sub(pattern, instead, reason)
    return reason


def plain_left_float(reason: str) -> str:
    """Return why the quantiser left an operator float, as people read it.

    Args:
        reason: the stage that failed and what it raised, such as ``transform: RuntimeError: no``.
    """
    stage, found, raised = reason.partition(": ")
    if not found or stage not in _STAGES:
        return reason
    text = plain(re.sub(r"^\w+(Error|Exception): ", "", raised))
    if len(text) > LONGEST:
        text = f"{text[:LONGEST].rpartition(' ')[0]} ..."
    return _STAGES[stage] + text
