"""No test quantises arithmetic on constants: every graph that our quantisers annotate in a session is looked at."""

from safe_arm._compat.annotations import Q_ANNOTATION_KEY
from safe_arm.core.island import call_functions, op_name
from safe_arm.core.operators import VIEWS
from safe_arm.quantizer.annotation import contained_annotation
from safe_arm.quantizer.graphs.constant_values import ConstantValues


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
    """Look at every graph from now on, behind our steps, of which one that raises is left out."""
    refine = contained_annotation.refine
    if getattr(refine, "is_watched", False):
        return

    def refined(model, steps, ledger):
        refine(model, steps, ledger)
        none_is_quantised(model)

    refined.is_watched = True
    contained_annotation.refine = refined
