"""A proxy that breaks the network in front of a broker. See README.md."""
