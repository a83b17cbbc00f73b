"""Draws what the processes of a soak have used: `python -m compat_tests.soak.plot SAMPLES.csv PLOT.png`.

*Guarantees*: one panel for each of memory, handles, threads, disk; the instance that is never killed is the strong
line, the others, which begin anew with each kill, are faint.
*Assumes*: a file as `samples.write` makes it; matplotlib.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from compat_tests.soak.samples import Sample, read

PANELS = (
    ("rss_mb", "resident memory, MB"),
    ("handles", "open files and connections"),
    ("threads", "threads"),
    ("disk_mb", "disk, MB"),
)
STEADY = "#1f5fa8"
OTHERS = "#c9c9c9"


def draw(samples: Sequence[Sample], file: Path) -> None:
    """Write the plot; its format is the file name's."""
    from matplotlib.figure import Figure

    last, figure = samples[-1], Figure(figsize=(8, 8), layout="constrained")
    axes = figure.subplots(len(PANELS), 1, sharex=True)
    for panel, (name, label) in zip(axes, PANELS, strict=True):
        for instance in sorted({one.instance for one in samples}, reverse=True):
            its = [one for one in samples if one.instance == instance]
            steady = instance == samples[0].instance
            panel.plot(
                [one.elapsed_s / 60 for one in its],
                [getattr(one, name) for one in its],
                color=STEADY if steady else OTHERS,
                linewidth=1.2 if steady else 0.5,
            )
        panel.set_ylabel(label, fontsize=8)
        panel.set_ylim(bottom=0)
        panel.tick_params(labelsize=8)
    axes[-1].set_xlabel("minutes", fontsize=8)
    axes[0].set_title(
        f"{last.records:,} records, {last.kills} kills (grey), {last.cuts} commits without an answer (blue)", fontsize=9
    )
    figure.savefig(file, dpi=90)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("samples", type=Path)
    parser.add_argument("plot", type=Path)
    arguments = parser.parse_args()
    draw(read(arguments.samples), arguments.plot)


if __name__ == "__main__":
    main()
