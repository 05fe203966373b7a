"""Domains: the values that share one, and its width."""
