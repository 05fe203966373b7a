"""Softmaxes and the masks of attention."""
