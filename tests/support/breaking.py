"""Lower without a trial and see which invariant a fault breaks."""

from __future__ import annotations

from lowering import lower, tosa
from mutation_nets import inputs, quantised
from mutations import MUTATIONS

from safe_arm import SafeArmPartitioner
from safe_arm.core.errors import InvariantError
from safe_arm.core.exceptions import Caught, attempted

PROFILE = "TOSA-1.0+INT"


def broken_in(graph_module, example, profile=PROFILE, **how):
    """The broken invariant of the first delegate that breaks one, None if all hold."""
    partitioner = SafeArmPartitioner(tosa(profile), preflight=False, non_fuseable="propagate", **how)
    lowered = attempted(lower, graph_module, example, partitioner)
    if not isinstance(lowered, Caught):
        return None
    if broken := [link for link in lowered.causes if isinstance(link, InvariantError)]:
        return broken[0]
    raise lowered.causes[-1]


def broken_by_mutation(name):
    """What a planted fault breaks."""
    mutation = next(m for m in MUTATIONS if m.id == name)
    with mutation.planted():
        return broken_in(quantised(mutation.net, PROFILE), inputs())
