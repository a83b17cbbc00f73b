"""The work `tasks`: `work.py` measures it, `app.py` does it: the topology of `idle`, watched."""
