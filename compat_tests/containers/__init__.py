"""Kafka in containers. See README.md."""
