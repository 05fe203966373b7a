"""What every other package stands on: islands, units, source lines, failures, errors, the record of a partitioning."""
