"""Quantisation-aware training: what is trained, folded and named."""
