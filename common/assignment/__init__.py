"""Which member runs which task: plan, model, assignors, hand-over. Pure functions of records."""
