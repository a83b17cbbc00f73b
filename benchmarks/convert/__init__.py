"""The work `convert`: `work.py` measures it."""
