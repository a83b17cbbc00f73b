"""Where a consumer begins reading if there is no committed offset: Kafka's `auto.offset.reset`, for all sources or for
one.

*Guarantees*: equal policies are equal values, however they were written.
*Assumes*: nothing.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Final, Literal, TypeAlias, get_args

Named: TypeAlias = Literal["earliest", "latest", "none"]

ResetPolicy: TypeAlias = Named | timedelta
"""`earliest` is the first record, `latest` is the end, and `none` is an error. A `timedelta` is the first record that
is no older than that (KIP-1106)."""

BY_DURATION: Final = "by_duration:"
_ISO = re.compile(r"P(?:(\d+)D)?(?:T(?=.)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?", re.IGNORECASE)
WANTED: Final = (
    "earliest, latest, none, or how old records may be: a timedelta, or Kafka's by_duration:PT1H (days, hours, minutes "
    "and seconds as in ISO 8601)"
)


def reset_policy(value: object) -> ResetPolicy:
    """The policy that `value` names. Raises `ValueError` for another value."""
    if isinstance(value, timedelta) and value >= timedelta():
        return value
    if isinstance(value, str):
        text = value.strip()
        for name in get_args(Named):
            if text.lower() == name:
                return name  # type: ignore[no-any-return]
        if text.lower().startswith(BY_DURATION):
            return _duration(text[len(BY_DURATION) :])
    raise ValueError(f"must be {WANTED}")


def _duration(text: str) -> timedelta:
    found = _ISO.fullmatch(text.strip())
    if found is None or not any(found.groups()):
        raise ValueError(f"must be {WANTED}; {text!r} is no duration")
    days, hours, minutes, seconds = (float(each or 0) for each in found.groups())
    return timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
