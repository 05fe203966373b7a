"""Store the net's state in a program, so that it does not start with whatever the memory holds (E5)."""

from __future__ import annotations

from executorch.exir import EdgeProgramManager, ExecutorchBackendConfig
from executorch.exir.passes.init_mutable_pass import InitializedMutableBufferPass


def config_with_state(edge: EdgeProgramManager) -> ExecutorchBackendConfig:
    """Return a configuration with which each buffer that the program writes into begins with the net's values.

    Without it ExecuTorch stores of such a buffer its shape and dtype (exir/emit/_emitter.py), and it begins with zeros
    in the wheel's runtime, on a device with what is in its memory.
    """
    names = set()
    for method in edge.methods:
        signature = edge.exported_program(method).graph_signature
        written = {*signature.buffers_to_mutate.values()}
        names |= {
            name
            for name, target in signature.inputs_to_buffers.items()
            if target in written
        }
    passes = [InitializedMutableBufferPass(sorted(names))] if names else []
    return ExecutorchBackendConfig(extract_delegate_segments=False, passes=passes)
