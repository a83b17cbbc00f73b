"""`PollingThread`: the one thread of an instance that polls.

*Guarantees*: those of `StreamThread`, whose loop it drives, over all tasks of the instance.
*Assumes*: one per instance at a time.
"""

from __future__ import annotations

from milestones.stream_thread.thread import StreamThread


class PollingThread(StreamThread):
    """Answers the group, fetches, feeds, sends, commits: nothing else.

    *Owns*: the consumer, the producer and the group member of the instance; the list of its tasks. *Receives*: what a
    stream thread receives; outputs and failures of processing threads, tasks of the state updater, stores of the store
    openers. *Sends*: what a stream thread sends; the moves of processing threads to the client.
    """
