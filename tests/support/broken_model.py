"""A fault in the process that runs the reference model."""

from safe_arm.verification import model_process


def break_model(monkeypatch, fault):
    """Have the model evaluate a Python expression in that process instead of running a graph.

    The expression may name the flatbuffer, the inputs and what the process has imported, and call ``real``.
    """
    parts = (
        "import os, signal, time",
        "real = model_server.run_arrays",
        f"model_server.run_arrays = lambda flatbuffer, inputs: {fault}",
        "model_server.serve(",
    )
    monkeypatch.setattr(
        model_process, "PROGRAM", model_process.PROGRAM.replace("model_server.serve(", "; ".join(parts), 1)
    )
