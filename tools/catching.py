"""Tell which inputs of a proof catch which planted fault: ``python tools/catching.py [--write]``."""

import json
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "tests" / "support"), str(ROOT)]

import pytest
from mutation_nets import inputs, quantised
from mutations import Mutation
from proving import delegates_of
from subtle_mutations import ALL

from safe_arm import SafeArmPassManager, seams
from safe_arm.verification.culprits import find_culprits
from safe_arm.verification.delegate import Delegate
from safe_arm.verification.distance import distance
from safe_arm.verification.evaluation import evaluated
from safe_arm.verification.placing import run_tapped
from safe_arm.verification.proof_cache import SWITCH
from safe_arm.verification.reference_model import run_tosa
from safe_arm.verification.stimuli import FEWEST, STIMULI, Stimulus, stimuli

#: By fault, the names of the inputs that catch it, each alone.
RECORD = ROOT / "tests" / "data" / "stimuli-catch.json"
PROFILE = "TOSA-1.0+INT"


def catches(delegate: Delegate, stimulus: Stimulus) -> bool:
    """Tell whether one set of inputs alone shows that a delegate is wrong."""
    expected = evaluated(delegate.program, delegate.state, stimulus.inputs, ties_up=True)
    outputs, tensors = run_tapped(delegate, stimulus.inputs, run_tosa)
    if not any(distance(node, o, expected).worst for node, o in zip(delegate.outputs, outputs, strict=True)):
        return False
    return bool(find_culprits(delegate, stimulus.inputs, outputs, tensors).culprits)


def caught_by(mutation: Mutation) -> list[str]:
    """Return the names of the inputs that catch a fault, with no check but measurement."""
    graph_module = quantised(mutation.net, PROFILE)  # Quantising runs some passes too.
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(SWITCH, "0")  # What is collected unproven counts as right.
        patch.setattr(SafeArmPassManager, "invariants", ())
        patch.setattr(seams, "fits", lambda program: lambda flatbuffer: None)
        with mutation.planted():
            delegates = delegates_of(graph_module, inputs(), PROFILE)
    tried = [(d, s) for d in delegates for count in (STIMULI, FEWEST) for s in stimuli(d.program, count)]
    return list(dict.fromkeys(s.name for delegate, s in tried if catches(delegate, s)))


def main() -> None:
    """Print the table; with --write, keep it."""
    table = {}
    for mutation in ALL:
        table[mutation.id] = caught_by(mutation)
        print(f"{mutation.id:32} {', '.join(table[mutation.id]) or 'NOTHING'}", flush=True)
    if "--write" in sys.argv:
        RECORD.write_text(json.dumps(table, indent=1) + "\n")


if __name__ == "__main__":
    main()
