"""The stages and their flags, as data.

*Guarantees*: a set of flags from here is legal.
*Assumes*: nothing.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations

from milestones.common.config import KEYS, StreamsConfig
from milestones.common.errors import ConfigError


@dataclass(frozen=True)
class Stage:
    """One stage. `flag`: the flag that the stage adds (None for the baseline); `needs`: the flags that the stage
    requires."""

    name: str
    flag: str | None
    needs: tuple[str, ...]
    title: str


STAGES: tuple[Stage, ...] = (
    Stage("baseline", None, (), "stream threads, each with its own clients and tasks; all work inline"),
    Stage("m1", "state_updater", (), "restoration and standby updates on threads of their own"),
    Stage("m2", "processing_threads", ("state_updater",),
          "processing threads take tasks; the stream thread polls, sends, commits"),
    Stage("m3", "fencing_tolerance", (), "a fenced or timed-out producer is replaced in place"),
    Stage("m4", "polling_thread", ("processing_threads",),
          "one consumer, one producer, one group member per instance"),
    Stage("m5", "committed_collector", ("polling_thread", "fencing_tolerance"),
          "one collector keeps outputs until Kafka has confirmed them; a failed transaction is resent"),
    Stage("m6", "state_manager", ("committed_collector",),
          "one owner of all stores: a database per sub-topology, tasks as ranges"),
)  # fmt: skip
_BY_NAME = {stage.name: stage for stage in STAGES}
_BY_FLAG = {stage.flag: stage for stage in STAGES if stage.flag is not None}


def parse_milestones(value: str | Iterable[str]) -> frozenset[str]:
    """Return the flags that `value` means. `value` is a stage (`"m3"` means the flags of `m3` and of all stages before
    it), or names of flags. Names are a text with commas or plus signs (as in `stage_name`), or a set. Raises a
    `ConfigError` that names unknown or missing flags."""
    items = [value] if isinstance(value, str) else value
    words = {word.strip().lower() for item in items for word in re.split("[,+]", item)} - {""}
    stages = words & _BY_NAME.keys()
    if stages and len(words) > 1:
        raise _error(value, f"name one stage, or flags; {sorted(stages)[0]} is a stage")
    flags = _up_to(stages.pop()) if stages else frozenset(words)
    for flag in sorted(flags):
        _check(value, flag, flags)
    return flags


def _up_to(stage: str) -> frozenset[str]:
    last = STAGES.index(_BY_NAME[stage])
    return frozenset(stage.flag for stage in STAGES[: last + 1] if stage.flag is not None)


def _check(value: str | Iterable[str], flag: str, flags: frozenset[str]) -> None:
    if flag not in _BY_FLAG:
        known = [*_BY_NAME, *_BY_FLAG]
        near = difflib.get_close_matches(flag, known, n=1)
        hint = f"did you mean {near[0]}?" if near else f"stages are {', '.join(_BY_NAME)}; flags {', '.join(_BY_FLAG)}"
        raise _error(value, f"there is no stage or flag {flag!r}; {hint}")
    missing = [needed for needed in _BY_FLAG[flag].needs if needed not in flags]
    if missing:
        are = "is" if len(missing) == 1 else "are"
        raise _error(value, f"{flag} needs {' and '.join(missing)}, which {are} missing")


def _error(value: str | Iterable[str], reason: str) -> ConfigError:
    shown = value if isinstance(value, str) else ",".join(sorted(value))
    return ConfigError("milestones", shown, reason)


def _in_order(flags: Iterable[str]) -> list[str]:
    wanted = frozenset(flags)
    return [stage.flag for stage in STAGES if stage.flag is not None and stage.flag in wanted]


def legal_sets() -> tuple[frozenset[str], ...]:
    """Return all sets of flags in which the needs of each flag are met. There are ten: the seven stages, and
    three more because `fencing_tolerance` needs no other flag, and only `committed_collector` needs it."""
    flags = list(_BY_FLAG)
    sets = (frozenset(chosen) for size in range(len(flags) + 1) for chosen in combinations(flags, size))
    return tuple(chosen for chosen in sets if all(chosen.issuperset(_BY_FLAG[flag].needs) for flag in chosen))


def stage_name(flags: frozenset[str]) -> str:
    """Return the name of a set of flags: the stage with exactly these flags, or the flags in order, joined by `+`."""
    for stage in STAGES:
        if flags == _up_to(stage.name):
            return stage.name
    return "+".join(_in_order(flags))


def stage_names() -> tuple[str, ...]:
    """Return the names of all legal sets of flags, the newest last."""
    return tuple(map(stage_name, legal_sets()))


_LESS = {"num_processing_threads": "only counts for this instance's share of the tasks"}
"""For each setting that has some effect even at stages that don't have its flag: this effect."""


def without_effect(config: StreamsConfig) -> list[str]:
    """Return warnings about settings, each with its reason. They are about values of a file or the environment that the
    code overrides, settings that the stage doesn't use, and costly sets of flags."""
    flags = parse_milestones(config.milestones)
    unused = [
        f"{key} {_LESS.get(key, 'has no effect')} at stage {stage_name(flags)}: it needs {_BY_NAME[about.stage].flag} "
        f"({about.stage})"
        for key, about in KEYS.items()
        if config.origin(key) != "default" and _BY_NAME[about.stage].flag not in {None, *flags}
    ]
    overridden = [
        f"{key} from {origin} isn't used, the code says otherwise: leave it out of the code, or give it as an option "
        "of `milestones run`"
        for key, origin in config.overridden().items()
    ]
    return overridden + unused + _costly(config, flags)


def _costly(config: StreamsConfig, flags: frozenset[str]) -> list[str]:
    """Return warnings about the cost of a set of flags, each with the flag that avoids this cost."""
    if config.exactly_once and "polling_thread" in flags and "fencing_tolerance" not in flags:
        text = "milestones has polling_thread without fencing_tolerance: each time its one producer is lost, all tasks "
        return [text + "of this instance are closed and opened anew; add fencing_tolerance, and they stay open"]
    return []
