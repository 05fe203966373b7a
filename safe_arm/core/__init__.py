"""The base of every other package: islands, units, source lines, failures, errors, the record of a partitioning."""
