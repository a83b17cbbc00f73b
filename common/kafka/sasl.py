"""Implements the SASL mechanisms PLAIN (RFC 4616), SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802), without I/O.

*Guarantees*: SCRAM verifies the server's signature. A server that doesn't know the password is refused.
*Assumes*: user name and password aren't empty.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable, Generator

from milestones.common.errors import SecurityError

Exchange = Generator[bytes, bytes, None]
"""A generator that yields the bytes to send. The caller sends the server's answers into it. With SCRAM it
ends once the server has proved that it knows the password."""

MIN_ITERATIONS = 4096
"""The smallest number of SCRAM iterations that is accepted. With fewer an attacker could guess passwords (RFC 7677)."""


def plain(username: str, password: str) -> Exchange:
    yield b"\0" + username.encode() + b"\0" + password.encode()


def scram(algorithm: str, username: str, password: str, nonce: str) -> Exchange:
    """Exchange the messages of SCRAM. `algorithm`: the name of the hash in hashlib. `nonce`: at least 16 random,
    printable ASCII characters without commas."""
    name = username.replace("=", "=3D").replace(",", "=2C")
    client_first = f"n={name},r={nonce}"
    server_first = yield f"n,,{client_first}".encode()
    fields = _fields(server_first)
    try:
        combined, salt, iterations = fields["r"], base64.b64decode(fields["s"], validate=True), int(fields["i"])
    except (KeyError, ValueError, binascii.Error) as error:
        raise SecurityError(f"SCRAM: the server's first message is malformed: {error}") from error
    if not combined.startswith(nonce) or iterations < MIN_ITERATIONS:
        raise SecurityError(f"SCRAM: the server's nonce or iteration count ({iterations}) can't be trusted")

    def mac(key: bytes, data: bytes) -> bytes:
        return hmac.digest(key, data, algorithm)

    salted = hashlib.pbkdf2_hmac(algorithm, password.encode(), salt, iterations)
    client_key = mac(salted, b"Client Key")
    without_proof = f"c=biws,r={combined}"
    signed = b",".join([client_first.encode(), server_first, without_proof.encode()])
    signature = mac(hashlib.new(algorithm, client_key).digest(), signed)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    server_final = yield f"{without_proof},p={base64.b64encode(proof).decode()}".encode()
    final = _fields(server_final)
    if "e" in final:
        raise SecurityError(f"SCRAM: the server refused the credentials: {final['e']}")
    expected = base64.b64encode(mac(mac(salted, b"Server Key"), signed)).decode()
    if not hmac.compare_digest(final.get("v", ""), expected):
        raise SecurityError("SCRAM: the server doesn't know the password: it isn't the broker it says it is")


def _fields(message: bytes) -> dict[str, str]:
    return dict(re.findall(r"(?:^|,)([a-z])=([^,]*)", message.decode("utf-8", "replace")))


MECHANISMS: dict[str, Callable[[str, str, str], Exchange]] = {
    "PLAIN": lambda username, password, _nonce: plain(username, password),
    "SCRAM-SHA-256": lambda username, password, nonce: scram("sha256", username, password, nonce),
    "SCRAM-SHA-512": lambda username, password, nonce: scram("sha512", username, password, nonce),
}
