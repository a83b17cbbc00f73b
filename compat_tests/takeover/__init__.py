"""The live take-over: one application, run in turn by Kafka Streams and by us, over one input.

    python -m pytest compat_tests/cases/test_take_over.py [--selection full]

The application is a table of *parts* (`parts.py`, and their twins in `src/Parts.java`): a windowed count emitted on
close, an outer join, a processor with a store ... each from input topics of its own to an output topic of its own, all
in one topology. `story.py` runs it: Java, ours, Java, ours, each stopped, or killed, in the middle of the input, and
once Java alone from the beginning to the end. `comparing.py` holds what came out of the first against the second:

| compared | exactly once, or at least once with clean ends | at least once with kills |
|---|---|---|
| outputs | each key's records in order: value, timestamp, headers, partition | as `Part.repeats` says |
| changelogs | the last row of each key; of joined records, which are a log, the records | of tables the last rows |
| committed offsets' metadata | partition time, and each processor's number (the windows emitted so far) | the same |
| internal topics | names, ids, partition counts and settings, after each leg as after the first | the same |
| what is read again | nothing: each leg begins with the committed offset | the same: at most the uncommitted tail |

**What makes one run the measure of another.** All input is in Kafka before anybody starts, and `max.task.idle.ms` is 0:
so a task knows of each of its partitions that there is more to come, and takes the earliest record of all. No two
records of a part have one timestamp, so that order is the same each time. Beyond that:

- A key has one partition, and its new key (`aggregate`, `regrouped`) holds the old one: all records of a new key come
  through one task, in its order.
- An operator's time begins anew with each process of Java: a record that one run drops as late would be taken after a
  restart. So records are out of order, but never later than the grace.
- Kafka Streams looks for records without a partner when the first of those it has noted may be over, and notes nothing
  over a restart. So such a result may come a little earlier, by another record, whose headers it has; `outer-join`
  leaves a key alone for so long that its own order stays the same, and its headers are not compared.
- The wall-clock throttles of emitting (both internal settings of Kafka Streams) are 0.
- The input ends with records far ahead of the others, one after the other: what waits is sent by the last of them.
- Timestamps are of today: brokers delete old changelog records of windows by their own clock.

- A join with a grace, and a suppression by time, aren't continued by Java as it has begun them, not even when nobody
  else was there (`Part.continued`): these are run by us alone, with restarts, and are what Java without one has sent.

To add a part: an entry in `PARTS` (`parts.py`), a method of the same name in `src/Parts.java`.
"""
