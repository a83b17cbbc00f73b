"""As much of S3 as snapshots need, on loopback, with the troubles that a bucket may have."""

from __future__ import annotations

import re
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from time import time
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
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

            def answer(self, status: int, body: bytes = b"", headers: dict[str, str] | None = None) -> None:
                self.send_response(status)
                for name, value in {"Content-Length": str(len(body)), "ETag": '"x"', **(headers or {})}.items():
                    self.send_header(name, value)
                self.send_header("Last-Modified", self.date_time_string(time()))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            def handle_any(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                bucket.seen.append(f"{self.command} {self.path}")
                bucket.headers.append({name.lower(): value for name, value in self.headers.items()})
                parts = urlsplit(self.path)
                key = unquote(parts.path).removeprefix("/b").removeprefix("/")
                if bucket.answers is not None:
                    self.answer(bucket.answers, b"<Error>not now</Error>")
                elif bucket.read_only and self.command not in ("GET", "HEAD"):
                    self.answer(403, b"<Error><Code>AccessDenied</Code></Error>")
                elif self.command == "POST":
                    keys = re.findall("<Key>(.*?)</Key>", body.decode())
                    for gone in keys:
                        bucket.content.pop(gone, None)
                    rows = "".join(f"<Deleted><Key>{gone}</Key></Deleted>" for gone in keys)
                    self.answer(200, f"<DeleteResult>{rows}</DeleteResult>".encode())
                elif not key:
                    self.answer(200, bucket.listing(parse_qs(parts.query)))
                elif self.command == "PUT":
                    there = self.headers.get("If-None-Match") == "*" and key in bucket.content
                    if not there:
                        bucket.content[key] = body
                    self.answer(412 if there else 200)
                elif key in bucket.content:
                    self.answer(200, bucket.content[key])
                else:
                    self.answer(404, b"<Error><Code>NoSuchKey</Code></Error>")

            do_GET = do_PUT = do_HEAD = do_POST = handle_any

        return Handler

    def listing(self, query: dict[str, Any]) -> bytes:
        (prefix,) = query.get("prefix", [""])
        found = sorted(key for key in self.content if key.startswith(prefix) and key not in self.hidden)
        rows = "".join(LISTED.format(key=escape(key), size=len(self.content[key])) for key in found)
        return (
            '<?xml version="1.0" encoding="UTF-8"?><ListBucketResult><Name>b</Name><IsTruncated>false</IsTruncated>'
            f"<KeyCount>{len(found)}</KeyCount><MaxKeys>1000</MaxKeys>{rows}</ListBucketResult>"
        ).encode()
