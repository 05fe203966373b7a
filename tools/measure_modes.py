"""Measure what stock and ours make of every mode, and write the table of the docs.

Run from the root of the checkout, with the lane's interpreter:
    python tools/measure_modes.py tests/data/modes-1.5.json            # all modes; a few minutes
    python tools/measure_modes.py tests/data/modes-1.5.json "cond"     # those whose name has it, again
"""

import copy
import json
import logging
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests" / "support"), str(ROOT)]

import torch
from executorch.exir.lowered_backend_module import LoweredBackendModule
from modes import MODES, STATES, Classes, Lowered, Mode
from stepping import called
from torch import Tensor
from torch.fx import GraphModule, Node
from torch.utils._pytree import tree_leaves

from safe_arm._compat.loading import delegates, why_it_does_not_load
from safe_arm.core.island import op_name
from safe_arm.verification.concrete_sizes import UnknownSizeError
from safe_arm.verification.delegate import run
from safe_arm.verification.distance import code_step
from safe_arm.verification.double import evaluate_in_double
from safe_arm.verification.lowered import delegate_of
from safe_arm.verification.reference_model import run_tosa

Row = dict[str, str]
#: Real outputs are compared with the model's own, relative to its largest: float32's and bfloat16's rounding.
RELATIVE = {torch.float32: 1e-5, torch.bfloat16: 2**-6}
DOCS = ROOT / "docs" / "support.md"
RIGHT, NOT_LOADING = "right", "does not load"


def outcome(mode: Mode, net: type[torch.nn.Module], *, safe: bool) -> Row:
    """Return what became of a net in a mode: right, how far off, or what it died of; and what was delegated."""
    classes = Classes(safe)
    try:
        lowered = mode.lower(classes, net())
        return {"outcome": _checked(classes, lowered), "delegated": _delegated(lowered)}
    except Exception as error:
        return {"outcome": f"dies: {_short(error)}", "delegated": ""}


def _checked(classes: Classes, lowered: list[Lowered]) -> str:
    try:
        return max((_apart(each) for each in lowered), key=_rank)
    except UnknownSizeError:  # Dynamic: only the lowering knows the sizes in a flatbuffer, and has verified at several.
        reports = [each.report for each in classes.partitioners]
        proven = reports and all(v.verified for report in reports for v in report.verifications)
        return RIGHT if proven else "not verified"


def _rank(text: str) -> tuple[bool, str]:
    return text != RIGHT, text


def _short(error: BaseException) -> str:
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [""]
    return f"{type(error).__name__}: {lines[0]}"[:160]


def _apart(lowered: Lowered) -> str:
    """Compare a program with its reference call by call, its state kept from one to the next."""
    for _, module in delegates(lowered.program.graph_module):
        if module.backend_id == "XnnpackBackend" and why_it_does_not_load(module):
            return NOT_LOADING
    reference, steps = lowered.reference, None
    if isinstance(reference, GraphModule):
        outputs = tree_leaves(reference.graph.output_node().args[0])
        steps = [code_step(node) if isinstance(node, Node) else None for node in outputs]
        stateful = any(name in STATES for name, _ in reference.named_buffers())
        if not stateful and not any("choose_qparams" in str(node.target) for node in reference.graph.nodes):
            reference = copy.deepcopy(reference)
            evaluate_in_double(reference)
    program, worst = copy.deepcopy(lowered.program), RIGHT  # The reference writes into the same buffers.
    for sample in lowered.samples:
        with torch.no_grad():
            expected = [leaf for leaf in tree_leaves(reference(*sample)) if isinstance(leaf, Tensor)]
        for index, (theirs, actual) in enumerate(zip(expected, called(program, sample, _run), strict=True)):
            worst = max(worst, _gap(theirs, actual, steps[index] if steps else None), key=_rank)
    return worst


def _gap(expected: Tensor, actual: Tensor, step: float | None) -> str:
    difference = float((expected.double() - actual.double()).abs().max())
    if step is not None:
        codes = round(difference / step)
        return f"{codes} code{'s' * (codes > 1)} off" if codes else RIGHT
    largest = float(expected.double().abs().max())
    allowed = largest * RELATIVE.get(expected.dtype, 0.0)
    return f"off by {difference / largest:.1g} of the largest value" if difference > allowed else RIGHT


def _run(name: str, lowered: LoweredBackendModule, inputs: list[Tensor]) -> list[Tensor]:
    if lowered.backend_id == "TOSABackend":
        return run(delegate_of(lowered, inputs), inputs, run_tosa)
    return list(lowered.original_module.module(check_guards=False)(*inputs))


def _operators(module: GraphModule) -> Iterator[Node]:
    for node in module.graph.nodes:
        name = op_name(node)
        if node.op == "call_function" and name and not name.startswith("quantized_decomposed::"):
            yield node
    for child in module.children():
        if isinstance(child, GraphModule):
            yield from _operators(child)


def _delegated(lowered: list[Lowered]) -> str:
    """Return how many operators are in Arm's delegates, of all but quantise and dequantise nodes."""
    inside = outside = 0
    for each in lowered:
        calls = list(delegates(each.program.graph_module))
        outside += sum("call_delegate" not in op_name(node) for node in _operators(each.program.graph_module))
        for _, module in calls:
            count = sum(1 for _ in _operators(module.original_module.graph_module))
            inside += count if module.backend_id == "TOSABackend" else 0
            outside += 0 if module.backend_id == "TOSABackend" else count
    return f"{inside} of {inside + outside}"


def measured(name: str) -> dict[str, Row]:
    """Return what stock and ours make of each net of a mode."""
    mode = MODES[name]
    return {
        f"{net.__name__}, {'safe_arm' if safe else 'stock'}": outcome(mode, net, safe=safe)
        for net in mode.nets
        for safe in (False, True)
    }


PAGE = """---
hide: [toc]
---
# Which quantisation modes work?

All of them, with safe_arm: every row below is right, except for the four rows of 16-bit activations, which are
one code off within a documented tolerance.
The table shows what stock ExecuTorch {version} and safe_arm (`non_fuseable="propagate"`) make of small nets in every
mode in which the Arm backend is used. `python tools/measure_modes.py tests/data/modes-1.5.json` measured it,
and `tests/test_modes.py` measures it again.

*Right* means 0 codes of difference from the quantised graph in double precision, in every output. Real outputs may
differ by the rounding of float32 or bfloat16 ({float32:g} and {bfloat16:g} of the largest value). Each program runs
call by call, its delegates in the TOSA reference model and the rest eagerly, on inputs of the calibrated range and of
three times that range. The number of delegated operators is in brackets, without quantise and dequantise nodes.

`Plain` is two convolutions with the input added, a sigmoid, a mean and a linear. `Joined` has a `cat` behind a ReLU
instead, like a U-Net.

| mode | net | stock | safe_arm |
|---|---|---|---|
{rows}

## Notes
* **Loops.** With stock's quantiser the body reads its value in a domain of its own, and the delegate rounds it once
  more each turn (S40). With ours a value has one domain in and around the loop.
* **`cond` over convolutions in INT.** Stock crashes while it quantises (T10); safe_arm delegates the whole condition.
* **Dynamic int8 activations.** Stock crashes on biases (T12). safe_arm exports, and these layers run on the CPU.
* **A dynamic batch** is right because it was verified at several sizes while lowering.
* **16-bit activations.** The one code is accepted by the rows in `safe_arm/verification/tolerances.py`.
* **With XNNPACK behind**, a program counts as right only if its XNNPACK delegates load.
"""


def page(table: dict[str, dict[str, Row]]) -> str:
    """Return the page of the docs."""
    rows = []
    for name, results in table.items():
        for net in dict.fromkeys(key.rpartition(", ")[0] for key in results):
            stock, ours = (_cell(results[f"{net}, {by}"]) for by in ("stock", "safe_arm"))
            rows.append(f"| {name} | {net} | {stock} | {ours} |")
    rounding = {str(dtype).removeprefix("torch."): allowed for dtype, allowed in RELATIVE.items()}
    return PAGE.format(version="1.5.1", rows="\n".join(rows), **rounding)


def _cell(row: Row) -> str:
    outcome = row["outcome"].replace("dies: ", "crashes: ")
    text = outcome.replace("|", "\\|").replace("_", "\\_").replace("*", "\\*").replace("<", "\\<")
    return f"{text} ({row['delegated']})" if row["delegated"] else text


def main(path: str, part: str = "") -> None:
    """Measure the modes that a file lacks, or those with a text in their names, and write the page."""
    warnings.simplefilter("ignore")
    logging.disable(logging.ERROR)
    file = Path(path)
    table: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    for name in MODES:
        if part in name and (part or name not in table):
            table[name] = measured(name)
            print(name, json.dumps(table[name]), flush=True)
            file.write_text(json.dumps({each: table[each] for each in MODES if each in table}, indent=1) + "\n")
    DOCS.write_text(page(table))


if __name__ == "__main__":
    main(*sys.argv[1:])
