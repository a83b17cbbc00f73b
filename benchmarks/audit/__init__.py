"""The work `audit`: `work.py` plants what `milestones.pipeline.audit` has to find."""
