"""Call a lowered program again and again, its state kept from one call to the next."""

from torch.export.graph_signature import OutputKind

from safe_arm.verification.lowered import run_with
from safe_arm.verification.reference_model import run_lowered


def called(program, sample, run_delegate=None):
    """The user's outputs of a call; what the program writes into buffers is there at the next.

    Without a function for the delegates they are TOSA's, and run in the reference model.
    """
    outputs = run_with(run_delegate, program, sample) if run_delegate else run_lowered(program, sample)
    results = list(outputs)
    for spec in program.graph_signature.output_specs:
        if spec.kind == OutputKind.BUFFER_MUTATION:
            held = program.state_dict if spec.target in program.state_dict else program.constants
            held[spec.target] = results.pop(0).detach().clone()
    return results
