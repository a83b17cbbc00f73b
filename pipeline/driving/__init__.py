"""The code that runs in Spark's driver: it is a member of the group, makes plans, and runs jobs."""
