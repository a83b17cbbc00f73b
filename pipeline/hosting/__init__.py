"""The code that runs inside a Spark task: it processes a range of the input of one task of the topology."""
