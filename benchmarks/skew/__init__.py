"""The work `skew`: `work.py` measures it, the programs in `last/` do it."""
