"""The topologies under test on Spark, beside live stages. Without PySpark nothing here is collected."""
