"""As much of S3 as snapshots need, on loopback, with the troubles that a bucket may have."""

from __future__ import annotations

import re
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from threading import Event
from time import monotonic, time
from typing import Any
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

from compat_tests.network.serving import Quiet, serving
from milestones.common.state.snapshots.repository import SnapshotRepository

SECRET = "sesame-open-4711"
LISTED = (
    "<Contents><Key>{key}</Key><LastModified>2026-11-26T22:00:00.000Z</LastModified><ETag>&quot;x&quot;</ETag>"
    "<Size>{size}</Size><StorageClass>STANDARD</StorageClass></Contents>"
)


@dataclass
class Bucket:
    """A bucket `b`. `answers`: the status of every answer, instead of the right one; `hangs_up`: connections end
    without an answer; `silent`: no answer comes until it is set; `read_only`; `hidden`: keys that aren't listed yet;
    `late_s`: how long a new key isn't; `seen`, `headers`: of all requests."""

    content: dict[str, bytes] = field(default_factory=dict)
    answers: int | None = None
    hangs_up: bool = False
    silent: Event | None = None
    read_only: bool = False
    hidden: set[str] = field(default_factory=set)
    late_s: float = 0.0
    made_s: dict[str, float] = field(default_factory=dict)
    seen: list[str] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)

    url = "s3://b/deep"

    def serving(self) -> AbstractContextManager[str]:
        return serving(self._handler())

    def options(self, endpoint: str) -> dict[str, str]:
        """`snapshot_options` for this bucket."""
        return {
            "aws_endpoint": endpoint, "aws_region": "here", "aws_access_key_id": "ann",
            "aws_secret_access_key": SECRET, "allow_http": "true",
        }  # fmt: skip

    def repository(
        self, endpoint: str, timeout_ms: int = 5_000, application_id: str = "app", **options: str
    ) -> SnapshotRepository:
        given = self.options(endpoint) | options
        return SnapshotRepository(self.url, application_id, options=given, timeout_ms=timeout_ms)

    def _handler(bucket) -> type[BaseHTTPRequestHandler]:  # noqa: N805  the handler has the name self
        class Handler(Quiet):
            protocol_version = "HTTP/1.1"

            def handle_any(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                bucket.seen.append(f"{self.command} {self.path}")
                if bucket.silent is not None:
                    bucket.silent.wait()
                if bucket.hangs_up or bucket.silent is not None:
                    self.close_connection = True
                    return
                bucket.headers.append({name.lower(): value for name, value in self.headers.items()})
                status, answer = bucket.answer(self.command, urlsplit(self.path), body, bucket.headers[-1])
                self.send_response(status)
                self.send_header("Content-Length", str(len(answer)))
                self.send_header("ETag", '"x"')
                self.send_header("Last-Modified", self.date_time_string(time()))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(answer)

            do_GET = do_PUT = do_HEAD = do_POST = handle_any  # noqa: N815  as the library calls them

        return Handler

    def answer(self, command: str, url: SplitResult, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
        """Status and content."""
        key = unquote(url.path).removeprefix("/b").removeprefix("/")
        if self.answers is not None:
            return self.answers, b"<Error>not now</Error>"
        if self.read_only and command not in ("GET", "HEAD"):
            return 403, b"<Error><Code>AccessDenied</Code></Error>"
        if command == "POST":
            return 200, self.delete(body)
        if command == "PUT":
            return self.put(key, body, headers), b""
        if not key:
            return 200, self.listing(parse_qs(url.query))
        return (200, self.content[key]) if key in self.content else (404, b"<Error><Code>NoSuchKey</Code></Error>")

    def put(self, key: str, body: bytes, headers: dict[str, str]) -> int:
        if headers.get("if-none-match") == "*" and key in self.content:
            return 412
        self.content[key] = body
        self.made_s.setdefault(key, monotonic())
        return 200

    def delete(self, body: bytes) -> bytes:
        keys = re.findall("<Key>(.*?)</Key>", body.decode())
        for key in keys:
            self.content.pop(key, None)
        rows = "".join(f"<Deleted><Key>{key}</Key></Deleted>" for key in keys)
        return f"<DeleteResult>{rows}</DeleteResult>".encode()

    def listing(self, query: dict[str, Any]) -> bytes:
        (prefix,) = query.get("prefix", [""])
        late = {key for key, made_s in list(self.made_s.items()) if monotonic() - made_s < self.late_s}
        hidden = self.hidden | late
        found = sorted(key for key in list(self.content) if key.startswith(prefix) and key not in hidden)
        rows = "".join(LISTED.format(key=escape(key), size=len(self.content[key])) for key in found)
        return (
            '<?xml version="1.0" encoding="UTF-8"?><ListBucketResult><Name>b</Name><IsTruncated>false</IsTruncated>'
            f"<KeyCount>{len(found)}</KeyCount><MaxKeys>1000</MaxKeys>{rows}</ListBucketResult>"
        ).encode()
