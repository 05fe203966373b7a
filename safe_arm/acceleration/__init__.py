"""Wrappers that make ExecuTorch's own steps faster and change no byte; one switch turns all of them off."""
