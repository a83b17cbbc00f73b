"""`python -m benchmarks picture`: ours on every stage beside all others, in every scenario. `scenarios.py` has the
table of what is done, `measuring.py` does it, `page.py` and `drawings.py` show it."""
