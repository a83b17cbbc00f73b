"""The example of docs/stores.md runs, and gives what the page says."""

from __future__ import annotations

import pytest

from milestones import StoreSpec, TopologyError, VersionedStore, stores
from milestones.testing import TopologyTestDriver
from tests.docs.pages import DOCS, run


def test_the_example_tells_what_a_price_was_a_minute_before() -> None:
    with TopologyTestDriver(run("stores.md").builder) as driver:
        prices = driver.create_input_topic("prices", key=str, value=int)
        changes = driver.create_output_topic("changes", key=str, value=dict)
        for seconds, price in ((0, 100), (50, 110), (70, 90)):
            prices.pipe("tea", price, timestamp=1 + seconds * 1_000)
        assert changes.read_values() == [
            {"change": 0, "a minute before": None},
            {"change": 10, "a minute before": None},
            {"change": -20, "a minute before": 100},
        ]
        kept = driver.store("prices", VersionedStore)
        assert [each.value for each in kept.versions("tea")] == [100, 110, 90]


def test_the_example_keeps_the_headers_of_the_former_record() -> None:
    with TopologyTestDriver(run("stores.md").orders) as driver:
        orders = driver.create_input_topic("orders", key=str, value=str)
        headers = driver.create_output_topic("former-headers", key=str, value=str)
        for shop in (b"north", b"south"):
            orders.pipe("tea", "one", headers=[("shop", shop)])
        assert [record.headers for record in headers.read_records()] == [[], [("shop", b"north")]]


def test_the_page_has_every_constructor() -> None:
    text = (DOCS / "stores.md").read_text()
    for name in stores.__all__:
        assert name == "SpecOptions" or f"`{name}(" in text


@pytest.mark.parametrize(
    ("made", "spec"),
    [
        (stores.key_value("s", str, int), {"kind": "key-value"}),
        (stores.key_value("s", str, int, ttl=7), {"kind": "expiring-key-value", "ttl_ms": 7}),
        (stores.timestamped_key_value("s", str, int), {"kind": "timestamped-key-value"}),
        (
            stores.window("s", str, int, size=5, retention=9, duplicates=True),
            {"kind": "window", "window_ms": 5, "retention_ms": 9, "duplicates": True},
        ),
        (
            stores.timestamped_window("s", str, int, size=5, retention=9),
            {"kind": "timestamped-window", "window_ms": 5, "retention_ms": 9},
        ),
        (stores.session("s", str, int, retention=9), {"kind": "session", "retention_ms": 9}),
        (stores.timestamped_key_value_with_headers("s", str, int), {"kind": "timestamped-key-value-with-headers"}),
        (
            stores.timestamped_window_with_headers("s", str, int, size=5, retention=9),
            {"kind": "timestamped-window-with-headers", "window_ms": 5, "retention_ms": 9},
        ),
        (
            stores.session_with_headers("s", str, int, retention=9),
            {"kind": "session-with-headers", "retention_ms": 9},
        ),
        (
            stores.versioned("s", str, int, history=9, segment=3),
            {"kind": "versioned", "retention_ms": 9, "segment_interval_ms": 3},
        ),
        (stores.lru("s", str, int, max_entries=3), {"kind": "lru", "max_entries": 3, "persistent": False}),
    ],
    ids=lambda each: each.kind if isinstance(each, StoreSpec) else "",
)
def test_a_constructor_gives_the_spec_of_its_store(made: StoreSpec, spec: dict[str, object]) -> None:
    plain = stores.key_value("s", str, int)
    same = {"name": "s", "key_serde": plain.key_serde, "value_serde": plain.value_serde, **spec}
    assert made == StoreSpec(**same)  # type: ignore[arg-type]


def test_how_a_store_is_kept_is_said_by_the_words_of_tables() -> None:
    spec = stores.key_value("s", in_memory=True, logging=False, caching=True, changelog_config={"a": "b"})
    assert (spec.persistent, spec.logged, spec.cached, spec.changelog_config) == (False, False, True, {"a": "b"})
    assert stores.lru("s", max_entries=3, in_memory=False).persistent


def test_what_a_store_cannot_be_is_an_error_where_it_is_made() -> None:
    for make, words in (
        (lambda: stores.window("s", size=9, retention=5), "retention of 5 ms is shorter"),
        (lambda: stores.window("s", size=0, retention=5), "the size of a window must be at least 1 ms"),
        (lambda: stores.key_value("s", ttl=0), "a time to live must be at least 1 ms"),
        (lambda: stores.key_value("s", ttl=5, caching=True), "can't be cached"),
        (lambda: stores.lru("s", max_entries=0), "at least one entry"),
        (lambda: stores.versioned("s", history=-5), "a history must be at least 0 ms"),
        (lambda: stores.key_value("bad name"), "a store"),
        (lambda: stores.key_value("s", 5), "key must be a Serde"),  # type: ignore[arg-type]
    ):
        with pytest.raises(TopologyError, match=words):
            make()
