"""The work `convert`: `work.py` measures it; `kills.py` kills it, in processes of their own (`once.py`)."""
