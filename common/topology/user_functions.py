"""Checks the functions that a topology is given, when it is built.

Operators are immutable descriptions, and every function of the user is in one of their fields. For a `Stateless`, the
name of the field is that of the parameter of its `make`. So a new operator needs no change here.

*Guarantees*: each of the following mistakes raises a `TopologyError` that names node, function, file and line.

- A node has a coroutine function.
- A node has a generator function, and its result is ignored (so it would never begin) or used as a truth value (so
  every record would pass).
- An object that isn't a function is in the place of a function.
- A function can't take the arguments with which its operator calls it.

*Assumes*: nodes are those of `nodes.py`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any, Final, get_args, get_origin, get_type_hints

from milestones.common.diagnostics import shortened
from milestones.common.errors import TopologyError
from milestones.common.functions import AWAITED_BY_NOBODY, is_coroutine_function, is_generator_function
from milestones.common.state.spec import StoreSpec
from milestones.common.topology.nodes import Node, ProcessorNode, SinkNode, SourceNode, function_name, place_of
from milestones.common.topology.operators.stateless import Stateless

_NOT_ITERATED: Final = frozenset({"action", "predicate", "predicates"})
"""Fields whose functions must not be generator functions: nothing iterates over their results."""

_WITHOUT_KEY: Final = {"mapper": 1, "joiner": 2}
"""The number of arguments of functions without the key, which `with_key` adds."""

_TO_SEND: Final = "send a record by self.context.forward(record)"

_METHODS: Final = ("init", "process", "close")
_CALLED: Final = (*_METHODS, "transform")


def function_of(given: Any) -> Any:
    """Return `given` if it can be called. Raises `TopologyError` if not."""
    if not callable(given):
        raise TopologyError(f"an operator needs a function, not {shortened(repr(given), 100)}{_advice(given)}")
    return given


def _advice(given: object) -> str:
    """Return advice if a name was given in place of a function. In Kafka Streams a name may stand in this place."""
    named = given.name if isinstance(given, StoreSpec) else given
    if not isinstance(named, str):
        return ""
    return f": the name of a table's store is given as store={named!r}, the name of a node as name={named!r}"


def check_functions(node: Node) -> None:
    """Check all functions of `node`. Raises `TopologyError` for one that would never do its work."""
    _check_callable(node)
    for field, function in _functions(node):
        if isinstance(function, type):
            if field == "supplier":
                check_methods(function, node.name)
                check_complete(function, node.name)
        elif is_coroutine_function(function):
            raise TopologyError(f"{node.name}: {function_name(function)}{place_of(function)} {AWAITED_BY_NOBODY}")
        elif field in _NOT_ITERATED and is_generator_function(function):
            raise TopologyError(
                f"{node.name}: {function_name(function)}{place_of(function)} is a generator function, and nothing "
                "iterates over its results: return the result, don't yield it"
            )
        else:
            _check_arguments(node, field, function)


def _check_callable(node: Node) -> None:
    """Check that each field of the operator that must hold a function, by its type, holds one."""
    operator: Any = node.operator if isinstance(node, ProcessorNode) else None
    if operator is None or isinstance(operator, Stateless) or not is_dataclass(operator):
        return
    for field, hint in get_type_hints(type(operator)).items():
        value = getattr(operator, field, None)
        if get_origin(hint) is Callable and not callable(value):
            shown = shortened(repr(value), 100)
            raise TopologyError(f"{node.name}: its {field} must be a function, not {shown}{_advice(value)}")


def _check_arguments(node: Node, field: str, function: Callable[..., Any]) -> None:
    """Check that a function takes the arguments of its operator, if its signature is known. The signature of many
    functions in C isn't known. For a decorated function the decorator's signature counts, as it may pass other
    arguments on."""
    count = _arguments(node.operator, field) if isinstance(node, ProcessorNode) else None
    if count is None:
        return
    try:
        signature = inspect.signature(function, follow_wrapped=False)
    except (ValueError, TypeError):
        return
    try:
        signature.bind(*range(count))
    except TypeError as error:
        what = "one argument" if count == 1 else f"{count} arguments"
        raise TopologyError(
            f"{node.name}: {function_name(function)}{signature}{place_of(function)} is called with {what}: {error}"
        ) from None


def _arguments(operator: Any, field: str) -> int | None:
    """Return the number of arguments with which an operator calls the function in this field. The field's type says it.
    None if the type doesn't contain it."""
    if field in _WITHOUT_KEY and hasattr(operator, "with_key"):
        return _WITHOUT_KEY[field] + bool(operator.with_key)
    pending = [get_type_hints(operator.make if isinstance(operator, Stateless) else type(operator)).get(field)]
    while pending:
        hint = pending.pop()
        arguments = get_args(hint)
        if get_origin(hint) is Callable:
            return len(arguments[0]) if isinstance(arguments[0], list) else None
        pending.extend(arguments)
    return None


def check_methods(processor: object, node: str) -> None:
    """Check the methods of a processor or of a transformer, or of its class."""
    for name in _CALLED:
        method = getattr(processor, name, None)
        if is_coroutine_function(method):
            raise TopologyError(f"{node}: {function_name(method)}{place_of(method)} {AWAITED_BY_NOBODY}")
        if is_generator_function(method):
            raise TopologyError(
                f"{node}: {function_name(method)}{place_of(method)} is a generator function, and nothing iterates over "
                f"its results: {_TO_SEND if name in _METHODS else 'return the result'}, don't yield it"
            )


def check_complete(processor: object, node: str) -> None:
    """Check that the object that a supplier made has all methods of a processor."""
    missing = [name for name in _METHODS if not callable(getattr(processor, name, None))]
    if missing:
        raise TopologyError(
            f"{node}: {processor!r} has no method {missing[0]}: derive its class from milestones.Processor, or from "
            "milestones.FixedKeyProcessor for process_values, which have all but process"
        )


def hands_out(node: Node) -> bool:
    """True if the node passes its values to functions of the user."""
    if isinstance(node, SinkNode):
        return callable(node.topic) or node.partitioner is not None
    return isinstance(node, ProcessorNode) and _holds_functions(node.operator)


def passes_its_value(node: Node) -> bool:
    """True if the node may forward the same value object that it got, or a part of it."""
    return isinstance(node, ProcessorNode) and not getattr(node.operator, "makes_values", False)


def _holds_functions(given: Any) -> bool:
    """True if an operator, or an operator inside it, has a function of the user."""
    if isinstance(given, tuple):
        return any(map(_holds_functions, given))
    return callable(given) or (
        is_dataclass(given) and any(_holds_functions(getattr(given, field.name)) for field in fields(given))
    )


def _functions(node: Node) -> Iterator[tuple[str, Any]]:
    match node:
        case SourceNode():
            yield "timestamp_extractor", node.timestamp_extractor
        case SinkNode():
            yield "topic", node.topic
            yield "partitioner", node.partitioner
        case ProcessorNode(operator=Stateless(make, function)):
            yield next(iter(inspect.signature(make).parameters)), function
        case ProcessorNode():
            operator: Any = node.operator
            for field in fields(operator) if is_dataclass(operator) else ():
                value = getattr(operator, field.name)
                for each in value if isinstance(value, tuple) else (value,):
                    if callable(each):
                        yield field.name, each
