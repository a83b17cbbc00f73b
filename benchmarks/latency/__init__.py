"""The work `latency`: `work.py` measures it, the programs in `last/` do it."""
