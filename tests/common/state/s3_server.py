"""As much of S3 as snapshots need, on loopback, with the troubles that a bucket may have."""

from __future__ import annotations

import re
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from time import time
from typing import Any
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

from milestones.common.state.snapshots.repository import SnapshotRepository
from tests.common.state.serving import Quiet, serving

SECRET = "sesame-open-4711"
LISTED = (
    "<Contents><Key>{key}</Key><LastModified>2026-11-26T22:00:00.000Z</LastModified><ETag>&quot;x&quot;</ETag>"
    "<Size>{size}</Size><StorageClass>STANDARD</StorageClass></Contents>"
)


@dataclass
class Bucket:
    """A bucket `b`. `answers`: the status of every answer, instead of the right one; `read_only`; `hidden`: keys that
    aren't listed yet; `seen`, `headers`: of all requests."""

    content: dict[str, bytes] = field(default_factory=dict)
    answers: int | None = None
    read_only: bool = False
    hidden: set[str] = field(default_factory=set)
    seen: list[str] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)

    def serving(self) -> AbstractContextManager[str]:
        return serving(self._handler())

    def repository(self, endpoint: str, timeout_ms: int = 5_000, **options: str) -> SnapshotRepository:
        given = {
            "aws_endpoint": endpoint, "aws_region": "here", "aws_access_key_id": "ann",
            "aws_secret_access_key": SECRET, "allow_http": "true",
        }  # fmt: skip
        return SnapshotRepository("s3://b/deep", "app", options=given | options, timeout_ms=timeout_ms)

    def _handler(bucket) -> type[BaseHTTPRequestHandler]:  # noqa: N805  the handler has the name self
        class Handler(Quiet):
            protocol_version = "HTTP/1.1"

            def handle_any(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                bucket.seen.append(f"{self.command} {self.path}")
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
        return 200

    def delete(self, body: bytes) -> bytes:
        keys = re.findall("<Key>(.*?)</Key>", body.decode())
        for key in keys:
            self.content.pop(key, None)
        rows = "".join(f"<Deleted><Key>{key}</Key></Deleted>" for key in keys)
        return f"<DeleteResult>{rows}</DeleteResult>".encode()

    def listing(self, query: dict[str, Any]) -> bytes:
        (prefix,) = query.get("prefix", [""])
        found = sorted(key for key in self.content if key.startswith(prefix) and key not in self.hidden)
        rows = "".join(LISTED.format(key=escape(key), size=len(self.content[key])) for key in found)
        return (
            '<?xml version="1.0" encoding="UTF-8"?><ListBucketResult><Name>b</Name><IsTruncated>false</IsTruncated>'
            f"<KeyCount>{len(found)}</KeyCount><MaxKeys>1000</MaxKeys>{rows}</ListBucketResult>"
        ).encode()
