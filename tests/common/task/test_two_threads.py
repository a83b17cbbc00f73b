"""One thread processes, another one commits: each commit is a boundary, whole and consistent."""

from __future__ import annotations

import threading
from typing import Any

from milestones.common import serdes
from milestones.common.records import TopicPartition
from milestones.common.task.metadata import OffsetMetadata
from milestones.common.topology import StreamsBuilder
from tests.common.task.harness import Harness, a_store, processing

IN = TopicPartition("in", 0)
RECORDS = 3_000
WAIT_S = 60


def counting(context: Any, record: Any) -> None:
    """Two stores and an output, which must all say the same number."""
    first, second = context.get_state_store("first"), context.get_state_store("second")
    count = int(first.get("n") or 0) + 1
    first.put("n", str(count))
    second.put(f"{count % 7}", str(count))
    assert second.get(f"{count % 7}") == str(count)
    assert len(list(second.all())) == min(count, 7)
    context.forward(record.with_value(str(count)))


def test_a_commit_from_another_thread_holds_whole_records_only() -> None:
    h = Harness(processing(counting, [a_store("first"), a_store("second")])).start()
    h.feed(*(("k", "v", index) for index in range(RECORDS)))
    errors: list[BaseException] = []
    committed = threading.Event()

    def process() -> None:
        try:
            h.run(RECORDS // 2)
            assert committed.wait(WAIT_S)
            h.run(RECORDS - RECORDS // 2)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=process)
    thread.start()
    outputs, commits, done = 0, 0, False
    while not done:
        done = not thread.is_alive()
        commit = h.task.freeze()
        outputs += len(commit.all_outputs())
        offset = commit.offsets[IN]
        h.task.applied(commit, {"first": offset, "second": offset})
        commits += 1
        committed.set()
        first, second = h.engine("first"), h.engine("second")
        assert int(first.get(b"n", 0)) == offset
        assert max(map(int, second.values()), default=0) == offset
        assert OffsetMetadata.decode(commit.metadata[IN]).stream_time == offset - 1
        assert outputs == 3 * offset
    thread.join()
    assert (errors, h.task.input.position(IN)) == ([], RECORDS)
    assert commits > 1


def test_what_a_commit_logs_of_a_buffer_is_what_it_writes() -> None:
    """While updates come and go, each commit's changelog leads to the buffer of its boundary."""
    builder = StreamsBuilder()
    table = builder.stream("in", key=serdes.STRING, value=serdes.STRING).to_table()
    table.suppress(after=20, name="held").to_stream().to("out", key=serdes.STRING, value=serdes.STRING)
    h = Harness(builder.build()).start()
    h.feed(*((f"k{index % 97}", f"{index}", index) for index in range(RECORDS)))
    thread = threading.Thread(target=lambda: h.run(RECORDS))
    thread.start()
    topic, logged, done, held = h.task.subtopology.changelogs["held-store"], dict[bytes, Any](), False, 0
    while not done:
        done = not thread.is_alive()
        before = len(h.sent)
        h.commit()
        logged |= {output.key: output.value for output in h.sent[before:] if output.topic == topic}  # type: ignore[misc]
        kept = {key: value for key, value in logged.items() if value is not None}
        assert h.engine("held-store") == kept
        held = max(held, len(kept))
    thread.join()
    assert h.task.input.position(IN) == RECORDS
    assert held == 20
