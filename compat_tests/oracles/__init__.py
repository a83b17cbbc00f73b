"""Pure checks of what was read from Kafka, from disk and from processes.

*Guarantees*: nothing in here uses the runtime, starts anything or waits for anything; each check returns findings,
and an empty list is a pass. `planted/` proves of each that it finds what it is there for.
*Assumes*: topics were read to their ends.
"""
