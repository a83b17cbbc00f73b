"""`milestones config`: lists the settings of an application.

*Guarantees*: the command and `docs/configuration.md` show the same table.
*Assumes*: nothing. No application is loaded.
"""

from __future__ import annotations

import rich_click as click

from milestones.cli.console import OK, verbose_option
from milestones.common.config import KEYS, ConfigKey
from milestones.common.config.passthrough import CONTROLLED, PREFIXES, split
from milestones.common.config.render_docs import described_default, markdown
from milestones.common.config.unknown_keys import why_refused
from milestones.common.errors import ConfigError
from milestones.common.kafka.wire_security import why_refused as why_no_security


@click.command("config")
@click.argument("key", required=False)
@click.option("--markdown", "page", is_flag=True, help="Print the whole page docs/configuration.md.")
@verbose_option
def config(key: str | None, page: bool) -> int:
    """List the settings of an application, or explain one.

    Settings are given as keywords of Streams, as MILESTONES_KEY in the environment, in a TOML file, or with --set.

    \b
    Examples:
      milestones config
      milestones config commit_interval_ms
      milestones config --markdown | less
    """
    if page:
        click.echo(markdown(), nl=False)
    elif key is None:
        _list()
    else:
        click.echo(_explained(key.strip().lower().replace(".", "_").replace("-", "_").removeprefix("milestones_")))
    return OK


def _list() -> None:
    for name, key in KEYS.items():
        since = "" if key.stage == "baseline" else f"  (from {key.stage} on)"
        click.echo(f"{name} = {_plain(described_default(key))}{since}")
        click.echo(f"    {_plain(key.doc.partition('. ')[0].rstrip('.'))}.")
    click.echo(
        f"\nSettings of the Kafka clients: {', '.join(f'{prefix}...' for prefix in PREFIXES)}; security_protocol, "
        "sasl_..., ssl_... for every connection.\n`milestones config KEY` explains one, --markdown prints all."
    )


def _explained(name: str) -> str:
    """Returns the explanation of a setting. Raises `ConfigError` if there is no setting with this name."""
    if name in KEYS:
        return _of_ours(KEYS[name])
    at = split(name)
    if at is None:
        raise ConfigError(name, None, why_refused(name, KEYS))
    prefix, setting = at
    reasons = [CONTROLLED[client][setting] for client in PREFIXES.get(prefix, ()) if setting in CONTROLLED[client]]
    refused = [why for why in [why_no_security(setting)] if why is not None]
    if reasons or refused:
        raise ConfigError(name, None, (reasons + refused)[0])
    clients = " and ".join(sorted(PREFIXES.get(prefix, ()))) or "every client"
    where = "internal topics" if prefix == "topic_" else clients
    return f"{name}\n  goes to {where.replace('_', ' ')} as {setting}"


def _of_ours(key: ConfigKey[object]) -> str:
    lines = [
        key.name,
        f"  {_plain(key.doc)}",
        f"  type: {_plain(key.kind.text)}",
        f"  default: {_plain(described_default(key))}",
        f"  importance: {key.importance}; has an effect from stage {key.stage} on",
        f"  in the environment: MILESTONES_{key.name.upper()}",
    ]
    return "\n".join(lines)


def _plain(text: str) -> str:
    """Returns the text without Markdown marks."""
    return text.replace("`", "").replace("*", "").replace("\\|", "|")
