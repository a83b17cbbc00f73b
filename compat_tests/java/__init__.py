"""The bench against Java: each topology by name in Kafka's own test driver and in ours, on the same steps.

`python -m compat_tests.java --help`; compat_tests/README.md tells how to add a topology.
"""
