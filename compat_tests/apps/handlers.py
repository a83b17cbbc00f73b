"""Production exception handlers that a config names, beside those of the runtime."""

from __future__ import annotations

from milestones import Action, ErrorContext, Response

CONFUSED = "the handler doesn't know"


def again(context: ErrorContext, error: Exception) -> Response:
    """Whatever it is, it may succeed later."""
    return Response(Action.RETRY)


def confused(context: ErrorContext, error: Exception) -> Response:
    """It fails itself."""
    raise RuntimeError(CONFUSED)
