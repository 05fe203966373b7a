"""No test quantises arithmetic on constants: every graph that our quantisers annotate in a session is looked at."""

from safe_arm._compat.annotations import Q_ANNOTATION_KEY
from safe_arm.core.island import call_functions, op_name
from safe_arm.core.operators import VIEWS
from safe_arm.quantizer import safe_quantizers
from safe_arm.quantizer.constant_values import ConstantValues


def quantised_constants(model):
    """The operators that are annotated, depend on no input, and are read by what does.

    Those that show a constant another way are none.
    """
    values = ConstantValues(model)
    found = []
    for node in call_functions(model):
        annotation = node.meta.get(Q_ANNOTATION_KEY)
        if annotation is None or annotation.output_qspec is None or op_name(node) in VIEWS:
            continue
        readers = [reader for reader in node.users if reader.op != "output" and values.of(reader) is None]
        if readers and node.all_input_nodes and values.of(node) is not None:
            found.append(node.name)
    return found


def none_is_quantised(model):
    found = quantised_constants(model)
    assert not found, f"arithmetic on constants is quantised: {', '.join(found)}"


def watch():
    """Look at every graph from now on."""
    if none_is_quantised not in safe_quantizers._AFTER_ANNOTATION:
        safe_quantizers._AFTER_ANNOTATION += (none_is_quantised,)
