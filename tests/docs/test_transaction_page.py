"""The page about commits has the tables of the transaction's register."""

from __future__ import annotations

from docs import transaction


def test_the_tables_on_the_page_are_those_of_the_register() -> None:
    assert transaction.PAGE.read_text() == transaction.page(), "python -m docs.transaction"
