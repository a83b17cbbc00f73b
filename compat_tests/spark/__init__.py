"""The topologies under test on Spark, beside live stages. Without PySpark nothing here is collected, and the suite's
header says so."""

import importlib.util

PYSPARK = importlib.util.find_spec("pyspark") is not None
"""Whether this environment has PySpark."""
