"""What runs inside a Spark task: one task of the topology, over a range of its input."""
