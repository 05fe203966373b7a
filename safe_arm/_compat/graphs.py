"""Small questions about exported programs whose answers live in torch's and ExecuTorch's internals."""

from torch.export import ExportedProgram


def constant_placeholders(program: ExportedProgram) -> frozenset[str]:
    """Return the names of the placeholders that hold parameters, buffers or lifted constants."""
    signature = program.graph_signature
    return frozenset(
        (
            *signature.inputs_to_parameters,
            *signature.inputs_to_buffers,
            *signature.inputs_to_lifted_tensor_constants,
        )
    )
