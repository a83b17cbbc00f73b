"""The kinds of sensors: counts, timings, values, gauges.

Recording is plain arithmetic on the attributes of one object that lives as long as its owner. Nothing is allocated,
locked or called back per record. Rates, averages and maxima are computed when the owner publishes, about once a second.

*Guarantees*: `publish` yields each statistic with its suffix, for the last window. Without samples, an average or a
maximum is 0.
*Assumes*: recording and publishing happen in the owner's thread. `now_ms` is monotonic time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Literal, Protocol

Number = int | float
Statistic = Literal["counter", "gauge", "text"]
HOUR = 3600


class Sensor(Protocol):
    """A measured quantity with its statistics."""

    statistics: dict[str, Statistic]
    """The statistics that the sensor publishes. The key is the suffix of the metric's name. The value says whether it
    is a count, a number or text."""

    def publish(self, now_ms: int, window_ms: int) -> Iterator[tuple[str, Number | str]]:
        """Yield each statistic with its present value."""
        ...


class History:
    """Stores the totals of earlier publications, back to the last one before the window began."""

    def __init__(self, now_ms: int) -> None:
        self._marks: deque[tuple[int, int, int]] = deque([(now_ms, 0, 0)])

    def since(self, now_ms: int, window_ms: int, total: int, amount: int) -> tuple[int, int, int]:
        """Return the length of the window in ms, and how much both totals grew in it. The given totals are stored for
        later calls."""
        marks = self._marks
        marks.append((now_ms, total, amount))
        while len(marks) > 2 and marks[1][0] <= now_ms - window_ms:
            marks.popleft()
        then, old_total, old_amount = marks[0]
        return now_ms - then, total - old_total, amount - old_amount


class Largest:
    """Stores the largest values of the publications in the window."""

    def __init__(self) -> None:
        self._marks: deque[tuple[int, Number]] = deque()

    def over(self, now_ms: int, window_ms: int, latest: Number | None) -> Number:
        """Return the largest value of the window. `latest`: the largest value since the last publication. None if there
        was none."""
        marks = self._marks
        if latest is not None:
            marks.append((now_ms, latest))
        while marks and marks[0][0] <= now_ms - window_ms:
            marks.popleft()
        return max((value for _, value in marks), default=0)


class Count:
    """Counts how often something happened. Record with `count.total += n`."""

    statistics: dict[str, Statistic]

    def __init__(self, now_ms: int, *, hourly: bool = False) -> None:
        self.total = 0
        self._rate, self._seconds = ("-rate-per-hour", HOUR) if hourly else ("-rate", 1)
        self._history = History(now_ms)
        self.statistics = {self._rate: "gauge", "-total": "counter"}

    def publish(self, now_ms: int, window_ms: int) -> Iterator[tuple[str, Number]]:
        span, count, _ = self._history.since(now_ms, window_ms, self.total, 0)
        yield self._rate, _per_second(count, span) * self._seconds
        yield "-total", self.total


class Total:
    """A sum that only grows. Record with `total.total += n`."""

    statistics: dict[str, Statistic] = {"-total": "counter"}  # noqa: RUF012

    def __init__(self, now_ms: int) -> None:
        self.total = 0

    def publish(self, now_ms: int, window_ms: int) -> Iterator[tuple[str, Number]]:
        yield "-total", self.total


class Timing:
    """Measures how often something happened, how long it took, and its share of the time. Record with
    `timing.add(elapsed_ns, calls)`."""

    statistics: dict[str, Statistic]

    def __init__(self, now_ms: int, *, unit_ns: int, ratio: bool = False, hourly: bool = False) -> None:
        self.total: int = 0
        self.elapsed_ns: int = 0
        self._longest_ns = 0.0
        self._unit_ns, self._ratio, self._hourly = unit_ns, ratio, hourly
        self._history, self._largest = History(now_ms), Largest()
        self._calls_published = 0
        self.statistics = _timing_statistics(ratio=ratio, hourly=hourly)

    def add(self, elapsed_ns: int, calls: int = 1) -> None:
        """Add `calls` that took `elapsed_ns` nanoseconds together. Both numbers may be 0."""
        self.total += calls
        self.elapsed_ns += elapsed_ns
        if calls and elapsed_ns > self._longest_ns * calls:
            self._longest_ns = elapsed_ns / calls

    def publish(self, now_ms: int, window_ms: int) -> Iterator[tuple[str, Number]]:
        span, calls, elapsed = self._history.since(now_ms, window_ms, self.total, self.elapsed_ns)
        latest = self._longest_ns if self.total > self._calls_published else None
        longest = self._largest.over(now_ms, window_ms, latest)
        self._longest_ns, self._calls_published = 0.0, self.total
        if self._hourly:
            yield "-rate-per-hour", _per_second(calls, span) * HOUR
        else:
            yield "-rate", _per_second(calls, span)
        yield "-total", self.total
        yield "-latency-avg", elapsed / calls / self._unit_ns if calls else 0.0
        yield "-latency-max", longest / self._unit_ns
        if self._ratio:
            yield "-ratio", min(1.0, elapsed / (span * 1_000_000)) if span else 0.0


class Value:
    """A quantity whose average and maximum are published. Record with `value.add(amount)`."""

    statistics: dict[str, Statistic] = {"-avg": "gauge", "-max": "gauge"}  # noqa: RUF012

    def __init__(self, now_ms: int) -> None:
        self._count = self._sum = 0
        self._highest: int | None = None
        self._history, self._largest = History(now_ms), Largest()

    def add(self, amount: int) -> None:
        """Add one observation."""
        self._count += 1
        self._sum += amount
        if self._highest is None or amount > self._highest:
            self._highest = amount

    def publish(self, now_ms: int, window_ms: int) -> Iterator[tuple[str, Number]]:
        _, count, amount = self._history.since(now_ms, window_ms, self._count, self._sum)
        largest, self._highest = self._largest.over(now_ms, window_ms, self._highest), None
        yield "-avg", amount / count if count else 0.0
        yield "-max", largest


class Gauge:
    """A present value. Set `gauge.value`, or set `gauge.read`, which is called at each publication."""

    statistics: dict[str, Statistic] = {"": "gauge"}  # noqa: RUF012

    def __init__(self, now_ms: int) -> None:
        self.value: Number = 0
        self.read: Callable[[], Number] | None = None

    def publish(self, now_ms: int, window_ms: int) -> Iterator[tuple[str, Number]]:
        yield "", self.value if self.read is None else self.read()


class Text:
    """The present name of something, such as a state. Set `text.value`."""

    statistics: dict[str, Statistic] = {"": "text"}  # noqa: RUF012

    def __init__(self, now_ms: int) -> None:
        self.value = ""

    def publish(self, now_ms: int, window_ms: int) -> Iterator[tuple[str, str]]:
        yield "", self.value


def _per_second(count: int, span_ms: int) -> float:
    return count * 1000 / span_ms if span_ms > 0 else 0.0


def _timing_statistics(*, ratio: bool, hourly: bool) -> dict[str, Statistic]:
    names: dict[str, Statistic] = {
        "-rate-per-hour" if hourly else "-rate": "gauge",
        "-total": "counter",
        "-latency-avg": "gauge",
        "-latency-max": "gauge",
    }
    return names | ({"-ratio": "gauge"} if ratio else {})
