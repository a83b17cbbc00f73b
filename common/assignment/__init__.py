"""Which member runs which task: plan, model, assignor. Pure functions of records."""
