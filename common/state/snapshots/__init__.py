"""Reads, writes and removes snapshots of stores at a URL."""
