"""`python -m milestones.cli` is the command `milestones`."""

from __future__ import annotations

from milestones.cli.main import main

if __name__ == "__main__":
    main()
