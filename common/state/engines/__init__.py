"""Engines: key-value stores of bytes in memory and in RocksDB, by two libraries; files that an engine takes in."""
