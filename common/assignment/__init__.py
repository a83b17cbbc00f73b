"""The assignment of tasks to members: plan, model, assignors, hand-over. Pure functions of records."""
