"""Proof that the checks can fail: each test plants the fault that a check is there for, and sees it caught."""
