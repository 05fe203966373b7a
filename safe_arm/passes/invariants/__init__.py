"""The invariants that hold between the passes of a lowering, one a file, and the tuple of them."""

from safe_arm.passes.invariants.clamps_kept import ClampsKept
from safe_arm.passes.invariants.constants_kept import ConstantsKept
from safe_arm.passes.invariants.domains_meet import DomainsMeet
from safe_arm.passes.invariants.folded_qparams import FoldedQParams
from safe_arm.passes.invariants.outputs_as_promised import OutputsAsPromised
from safe_arm.passes.invariants.places_written_once import PlacesWrittenOnce
from safe_arm.passes.invariants.watch import Invariant, Watch

#: Every invariant, in the order checked.
INVARIANTS: tuple[type[Invariant], ...] = (
    FoldedQParams,
    ClampsKept,
    ConstantsKept,
    PlacesWrittenOnce,
    OutputsAsPromised,
    DomainsMeet,
)

__all__ = ["INVARIANTS", "Invariant", "Watch"]
