import pytest
from lowering import spec_list, tosa

from safe_arm._compat.compile_specs import spec_source
from safe_arm.core.island import call_functions
from safe_arm.repro.script import TAKEN, script
from safe_arm.repro.source_code import source_of
from safe_arm.repro.writer import _constants


@pytest.fixture(scope="session")
def written():
    """The text of a script for operators of an edge program, all if not said, and its source."""
    spec = spec_source("TOSABackend", spec_list(tosa("TOSA-1.0+FP")))

    def written(program, nodes=None, *, expected=None, beside=False):
        constants = _constants(program)
        source = source_of(nodes or list(call_functions(program.graph_module)), constants, TAKEN)
        return script(source, spec, expected, beside=beside), source

    return written
