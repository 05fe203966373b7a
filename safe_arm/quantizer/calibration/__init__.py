"""Observers, and what watches them while samples run."""
