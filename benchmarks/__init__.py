"""Benchmarks: stock and ours in alternation, in one run; ratios and medians, because machines are noisy."""
