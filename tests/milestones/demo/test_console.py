"""`examples/console.py`: what becomes a key, and what is said when there is no Kafka."""

from __future__ import annotations

import io
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

CONSOLE = str(Path(__file__).parents[3] / "examples" / "console.py")


class Sent:
    """A producer and what it was given."""

    def __init__(self) -> None:
        self.records: list[tuple[Any, Any]] = []

    def produce(self, _topic: str, value: str, key: str | None) -> None:
        self.records.append((key, value))

    def poll(self, _timeout_s: float) -> None:
        pass

    def flush(self) -> None:
        pass


@pytest.mark.parametrize(
    ("options", "records"),
    [
        ([], [(None, "to be or: not"), (None, "pump:ok")]),
        (["--keyed"], [("to be or", " not"), ("pump", "ok")]),
    ],
)
def test_a_line_is_sent_with_a_key_only_when_keys_were_asked_for(
    options: list[str], records: list[tuple[str | None, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    main, sent = runpy.run_path(CONSOLE)["main"], Sent()

    class Results:
        def __init__(self, *_: object) -> None:
            pass

        def wait_until_quiet(self) -> None:
            assert sent.records

    fakes = {"create": lambda *_: None, "Results": Results, "Producer": lambda _: sent}
    monkeypatch.setattr(sys, "argv", ["console.py", "in", "out", *options])
    monkeypatch.setattr(sys, "stdin", io.StringIO("to be or: not\npump:ok\n"))
    for name, fake in fakes.items():
        monkeypatch.setitem(main.__globals__, name, fake)
    main()
    assert sent.records == records


def test_a_kafka_that_does_not_answer_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    main = runpy.run_path(CONSOLE)["main"]
    monkeypatch.setitem(main.__globals__, "ANSWER_S", 0.1)
    monkeypatch.setattr(sys, "argv", ["console.py", "in", "out", "--bootstrap-servers", "127.0.0.1:1"])
    with pytest.raises(SystemExit, match=r"no Kafka answered at 127\.0\.0\.1:1 within 0\.1 s"):
        main()
