"""SafeArmPartitioner: checks, the plan they make, and the partitioner that applies it."""
