"""Snapshots of stores: what one is, and the URL that it is published to and fetched from."""
