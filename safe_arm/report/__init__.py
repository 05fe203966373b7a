"""One frozen record of a partitioning, rendered as text, page or data."""
