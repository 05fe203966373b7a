"""One frozen record of a partitioning; text is a rendering of it."""
