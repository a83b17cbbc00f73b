"""`reset_policy`: reads the setting that says where a consumer begins if there is no committed offset. Kafka's name for
the setting is `auto.offset.reset`. It can be set for all sources or for one.

*Guarantees*: two texts for the same policy give equal values.
*Assumes*: nothing.
"""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Final, Literal, TypeAlias, get_args

Named: TypeAlias = Literal["earliest", "latest", "none"]

ResetPolicy: TypeAlias = Named | timedelta
"""Where to begin: `earliest` at the first record, `latest` at the end. `none` raises an error. A `timedelta` means the
first record that isn't older than this duration (KIP-1106)."""

BY_DURATION: Final = "by_duration:"
_ISO = re.compile(r"P(?:(\d+)D)?(?:T(?=.)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?", re.IGNORECASE)
WANTED: Final = (
    "earliest, latest, none, or how old records may be: a timedelta, or Kafka's by_duration:PT1H (days, hours, minutes "
    "and seconds as in ISO 8601)"
)


def reset_policy(value: object) -> ResetPolicy:
    """Returns the policy that `value` names. Raises `ValueError` if it names none."""
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
