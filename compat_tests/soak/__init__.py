"""Hours of it: what only shows after long. Every case is marked `soak` and bounded by `--soak-minutes`."""
