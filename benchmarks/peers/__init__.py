"""Other libraries in Python, as contenders: `declared.py` says which, `environment.py` installs each for itself, and
`quix.py`, `bytewax.py` and `faust.py` are their programs, one function per work. Nothing is imported here, so that no
contender carries what it doesn't need."""
