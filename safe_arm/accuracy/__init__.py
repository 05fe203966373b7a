"""The quality of each quantised unit compared with the float net."""

from safe_arm._compat.installation import executorch_imported
from safe_arm.core.unit_accuracy import EXACT_DB, Accuracy, UnitAccuracy

with executorch_imported():
    from safe_arm.accuracy.measuring import measure, tag_units

__all__ = ["EXACT_DB", "Accuracy", "UnitAccuracy", "measure", "tag_units"]
