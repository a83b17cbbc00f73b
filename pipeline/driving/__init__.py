"""What runs in Spark's driver: the place in the group, the plan, the jobs."""
