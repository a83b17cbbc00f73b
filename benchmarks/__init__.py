"""Benchmarks: the same work on Milestones, on a bare client loop, and on Kafka Streams. See README.md.

*Guarantees*: contenders are compared within one run, never across runs; what they wrote is checked before it counts.
*Assumes*: run from a checkout with the extra `bench`.
"""
