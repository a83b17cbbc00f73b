"""Writes and reads Kafka's signed varints (zig-zag), in which small numbers need few bytes.

*Guarantees*: `read_varint` reads what `varint` writes. It raises `ValueError` if the bytes are cut off.
*Assumes*: numbers of 32 bits.
"""

from __future__ import annotations


def varint(number: int) -> bytes:
    """Returns the bytes of a number."""
    left = number << 1 if number >= 0 else ~(number << 1)
    out = bytearray()
    while left > 0x7F:
        out.append(left & 0x7F | 0x80)
        left >>= 7
    out.append(left)
    return bytes(out)


def read_varint(data: bytes, start: int = 0) -> tuple[int, int]:
    """Read the number at `start`. Returns the number, and the position after its last byte."""
    number = shift = 0
    for position in range(start, len(data)):
        byte = data[position]
        number |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return (number >> 1) ^ -(number & 1), position + 1
        shift += 7
    raise ValueError("a varint is cut off")
