"""A certificate authority for a broker's TLS listeners."""

from __future__ import annotations

from pathlib import Path

import trustme
from cryptography.hazmat.primitives import serialization


def certified(folder: Path) -> None:
    """Write an authority's certificate into `ca.pem`, and into `server.pem` key and certificates of 127.0.0.1."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca.pem")
    server = authority.issue_cert("127.0.0.1")
    # Java reads private keys as PKCS 8 only.
    key = serialization.load_pem_private_key(server.private_key_pem.bytes(), None)
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    chain = b"".join(part.bytes() for part in server.cert_chain_pems)
    (folder / "server.pem").write_bytes(key.private_bytes(*form) + chain)
