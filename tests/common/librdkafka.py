"""What librdkafka says about its own settings."""

from __future__ import annotations

import ctypes
import logging
import re
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import NamedTemporaryFile

from confluent_kafka import KafkaException, Producer, cimpl


@cache
def properties() -> frozenset[str]:
    """The names of all settings that this librdkafka documents, callbacks and structures left out."""
    library, libc = ctypes.CDLL(_library()), ctypes.CDLL(None)
    libc.fopen.restype = ctypes.c_void_p
    libc.fclose.argtypes = library.rd_kafka_conf_properties_show.argtypes = [ctypes.c_void_p]
    with NamedTemporaryFile() as file:
        stream = libc.fopen(file.name.encode(), b"w")
        library.rd_kafka_conf_properties_show(stream)
        libc.fclose(stream)
        lines = file.read().decode().splitlines()
    names = (line.split("|")[0].strip() for line in lines if "dedicated API" not in line)
    return frozenset(name for name in names if re.fullmatch(r"[a-z0-9.]+", name))


def _library() -> str:
    """The library that confluent-kafka has loaded."""
    Producer({})
    loaded = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "librdkafka" in line}
    return next(iter(loaded), cimpl.__file__)


@cache
def redacted() -> frozenset[str]:
    """The settings whose values librdkafka hides in its own log."""
    return frozenset(name for name in properties() if _is_redacted(name))


def _is_redacted(name: str) -> bool:
    said: list[str] = []
    logger = logging.Logger("librdkafka", logging.DEBUG)
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    logger.addHandler(handler)
    with suppress(KafkaException, TypeError):
        Producer({name: "canary", "debug": "conf"}, logger=logger).poll(0)
    return any("[redacted]" in line for line in said)
