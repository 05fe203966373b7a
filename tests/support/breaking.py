"""Lower without a trial and see which invariant a fault breaks."""

from functools import cache

from lowering import lower, tosa
from mutation_nets import inputs, quantised
from mutations import MUTATIONS
from planting import Site, planted
from prepared import Prepared

from safe_arm import SafeArmPartitioner
from safe_arm.core.errors import InvariantError
from safe_arm.core.exceptions import Caught, attempted

PROFILE = "TOSA-1.0+INT"


def broken_in(graph_module, example, profile=PROFILE, **how):
    """The broken invariant of the first delegate that breaks one, None if all hold."""
    partitioner = SafeArmPartitioner(tosa(profile), preflight=False, non_fuseable="propagate", **how)
    return _first_broken(attempted(lower, graph_module, example, partitioner))


def outputs_changed(change):
    """Plant a fault: the last of the passes gives a changed list of outputs."""

    def changed(site: Site) -> bool:
        output = site.graph.output_node()
        output.args = (change(list(output.args[0])),)
        return True

    return planted("ExirToTosaPass", changed)


def check_broken(error, invariant, by, *says):
    """Check which invariant is broken, by which pass, and what the error says."""
    assert (error.invariant, error.broken_by) == (invariant, by)
    for text in says:
        assert text in str(error)


def _first_broken(result):
    if not isinstance(result, Caught):
        return None
    if broken := [cause for cause in result.causes if isinstance(cause, InvariantError)]:
        return broken[0]
    raise result.causes[-1]


def broken_by_mutation(name):
    """What a planted fault breaks."""
    mutation = next(m for m in MUTATIONS if m.id == name)
    with mutation.planted():
        net = _prepared(mutation.net)
        return _first_broken(attempted(net.lowered, net.partitioner(preflight=False, non_fuseable="propagate")))


@cache
def _prepared(name):
    return Prepared(None, PROFILE, inputs(), quantised(name, PROFILE))
