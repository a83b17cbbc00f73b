"""The work `standbys`: how standbys get on beside a restoration. `work.py` measures it, `moves/app.py` does it."""
