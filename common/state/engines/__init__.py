"""The three implementations of `Engine`: one in memory, and one for each of two libraries of RocksDB."""
