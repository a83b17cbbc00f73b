"""The kinds of stores, as user code and operators see them, and their bytes in engines and in changelogs."""
