"""Every topology that we have, by name. One that only Java has is listed as not here yet.

*Guarantees*: the names are one another's on both sides.
*Assumes*: a new topology has an entry in one of these modules, and one of the same name in src/.
"""

from __future__ import annotations

from collections.abc import Mapping

from compat_tests.java import (
    of_chains,
    of_cogroup,
    of_foreign_keys,
    of_global_stores,
    of_globals,
    of_headers,
    of_joins,
    of_optimization,
    of_processors,
    of_stores,
    of_streams,
    of_suppress,
    of_tables,
    of_versioned,
    of_windows,
)
from compat_tests.java.registry import Entry

MODULES = (
    of_streams, of_tables, of_processors, of_stores, of_windows, of_cogroup, of_suppress, of_joins, of_optimization,
    of_globals, of_global_stores, of_versioned, of_foreign_keys, of_chains, of_headers,
)  # fmt: skip

ALL: Mapping[str, Entry] = {
    entry.name: entry
    for module in MODULES
    for entry in module.ENTRIES
}
