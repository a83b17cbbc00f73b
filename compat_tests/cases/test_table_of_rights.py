"""The table of docs/rights.md on a broker that refuses whatever isn't allowed: an application needs those rights, no
others, and says which one it lacks."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from milestones import Streams, StreamsBuilder, serdes
from milestones.common.errors import MilestonesError
from milestones.common.kafka.embedded import EmbeddedKafka
from milestones.common.kafka.topics import Cluster
from milestones.common.records import TopicPartition
from milestones.testing import KafkaProbe, NotYet, until

pytestmark = [pytest.mark.full, pytest.mark.timeout(600)]

DOCS = Path(__file__).parents[2] / "docs" / "rights.md"
ID, PASSWORD = "ann-app", "sesame-open-4711"
LOGIN = f"org.apache.kafka.common.security.plain.PlainLoginModule required user_ann='{PASSWORD}';"
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.rights.plain.sasl.jaas.config": LOGIN,
}
LITERAL, PREFIXED = ResourcePatternType.LITERAL, ResourcePatternType.PREFIXED
Resources = list[tuple[Any, str, Any]]
ROWS: Mapping[str, Resources] = {
    "each source topic, and each topic of a global table": [
        (ResourceType.TOPIC, "lines", LITERAL), (ResourceType.TOPIC, "names", LITERAL),
    ],
    "each output topic, and the dead letter topic": [
        (ResourceType.TOPIC, "words", LITERAL), (ResourceType.TOPIC, "letters", LITERAL),
    ],
    "topics with the prefix `ID-`": [(ResourceType.TOPIC, f"{ID}-", PREFIXED)],
    "group `ID`": [(ResourceType.GROUP, ID, LITERAL)],
    "transactional ids with the prefix `ID`": [(ResourceType.TRANSACTIONAL_ID, ID, PREFIXED)],
    "topics with the prefix `ID-`, if you like": [(ResourceType.TOPIC, f"{ID}-", PREFIXED)],
}  # fmt: skip
"""What each row of the table is about, in this application."""
OPTIONAL = "topics with the prefix `ID-`, if you like"
NEEDED = [row for row in ROWS if row != OPTIONAL]


def table() -> dict[str, list[str]]:
    """The operations of each row, as the docs have them."""
    rows = re.findall(r"^\| ([^|]+) \| ([A-Z_, ]+) \|", DOCS.read_text(), re.MULTILINE)
    return {resource: operations.split(", ") for resource, operations in rows}


class Rights:
    """A broker, and an application of the user ann on it."""

    def __init__(self, broker: EmbeddedKafka, path: Path) -> None:
        self.broker, self.path, self.probe = broker, path, KafkaProbe(broker.bootstrap_servers)

    def give(self, rows: Iterable[str]) -> None:
        """The rights of these rows, and no others."""
        any_: Any = None
        every = AclBindingFilter(
            ResourceType.ANY, any_, ResourcePatternType.ANY, any_, any_, AclOperation.ANY, AclPermissionType.ANY
        )
        bindings = [
            AclBinding(*resource, "User:ann", "*", AclOperation[operation], AclPermissionType.ALLOW)
            for row in rows
            for resource in ROWS[row]
            for operation in table()[row]
        ]
        admin = self.probe.admin
        for future in [*admin.delete_acls([every]).values(), *admin.create_acls(bindings).values()]:
            future.result(20)

    def first(self, topic: str) -> int:
        """The highest first offset of its partitions; 0 while it is being made."""
        places = [TopicPartition(topic, number) for number in range(self.probe.topics().get(topic, 0))]
        try:
            bounds = Cluster({"bootstrap.servers": self.broker.bootstrap_servers}).bounds(places, committed=False)
        except KafkaException:
            return 0
        return max((first for first, _ in bounds.values()), default=0)

    def topology(self) -> StreamsBuilder:
        """Words of the lines by name, counted behind a repartition topic, and how many versions a word has."""
        builder = StreamsBuilder()
        names = builder.global_table("names", "names", key=serdes.STRING, value=serdes.STRING)
        lines = builder.stream("lines", key=serdes.STRING, value=serdes.STRING)
        named = lines.left_join(names, lambda line, name: f"{line} {name}", on=lambda key, _: key)
        words = named.flat_map_values(str.split).group_by(lambda _, word: word, key=serdes.STRING)
        words.count("counts", history=60_000).to_stream().to("words", key=serdes.STRING, value=serdes.LONG)
        return builder

    def streams(self, name: str, stage: str) -> Streams:
        return Streams(
            self.topology(), application_id=ID, bootstrap_servers=self.broker.address("RIGHTS"), milestones=stage,
            security_protocol="SASL_PLAINTEXT", sasl_mechanism="PLAIN", sasl_username="ann", sasl_password=PASSWORD,
            state_dir=str(self.path / name), processing_guarantee="exactly_once_v2", commit_interval_ms=100,
            repartition_purge_interval_ms=100, task_timeout_ms=5_000, errors_dead_letter_queue_topic_name="letters",
            deserialization_exception_handler="log_and_continue",
        )  # fmt: skip


@pytest.fixture(scope="module")
def rights(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rights]:
    path = tmp_path_factory.mktemp("rights")
    with EmbeddedKafka(path / "kafka", properties=AUTHORIZER, listeners={"RIGHTS": "SASL_PLAINTEXT"}) as broker:
        found = Rights(broker, path)
        found.probe.create({"lines": 2, "names": 1, "words": 1, "letters": 1})
        yield found


def test_every_row_of_the_table_is_tried() -> None:
    assert table().keys() == ROWS.keys()


@pytest.mark.parametrize("rows", [[*ROWS], NEEDED], ids=["all", "needed"])
def test_with_the_rights_of_the_table_an_application_runs_and_lacks_none(
    rights: Rights, stage: str, rows: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    rights.give(rows)
    word = f"{stage}{len(rows)}"
    rights.probe.write("lines", word, key="k")
    rights.probe.write("lines", b"\xff", key="k")
    letters = len(rights.probe.read("letters"))
    streams = rights.streams(word, stage)
    try:
        streams.start()

        def processed() -> object:
            words = {(record.key or b"").decode() for record in rights.probe.read("words")}
            purged = rights.first(f"{ID}-counts-repartition")
            return (word in words and len(rights.probe.read("letters")) > letters and purged > 0) or NotYet(
                f"{words} {purged} {streams.error}"
            )

        until(processed, "all that it writes is written, and what is done is purged", 120)
    finally:
        streams.close()
    said = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    about = [text for text in said if "AUTHORIZATION" in text.upper() or "right" in text or "authorized" in text]
    if rows == NEEDED:
        about = [text for text in about if "DESCRIBE_CONFIGS" not in text and "settings" not in text]
    assert about == []


@pytest.mark.parametrize("row", NEEDED)
def test_a_right_of_the_table_that_is_missing_at_the_start_is_named(rights: Rights, row: str) -> None:
    rights.give([one for one in NEEDED if one != row])
    streams = rights.streams("lacking", "m6")
    error: BaseException | None = None
    try:
        streams.start()
        rights.probe.write("lines", "a line", key="k")
        until(lambda: streams.error is not None or NotYet(streams.state), f"it says that it lacks: {row}", 120)
        error = streams.error
    except MilestonesError as refused:
        error = refused
    finally:
        with suppress(MilestonesError):
            streams.close()
    assert isinstance(error, MilestonesError)
    assert error.exit_code == 2
    assert any(name in str(error) for _, name, _ in ROWS[row])
