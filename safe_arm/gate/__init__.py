"""A gate for CI: what got worse since a committed baseline, by how much and since which node."""
