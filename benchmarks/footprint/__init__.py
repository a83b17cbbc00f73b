"""The work `footprint`: `work.py` measures it, the programs in `last/` do it."""
