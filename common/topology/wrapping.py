"""`ProcessorWrapper`: user code around every processor of an application (KIP-1112).

    wrap_processor_supplier(node, supplier) -> supplier of processors that call those of the given one

*Guarantees*: a wrapper is asked once for each processor node, when the application is made of its topology, with the
node's name; what it returns makes the node's processor in every task. A wrapper that returns what it was given changes
nothing. The stores that a wrapped supplier brings are connected to the node.
*Assumes*: a processor that a wrapper returns calls `init` of the one that it wraps, from its own `init`, with its own
context.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from milestones.common.errors import TopologyError
from milestones.common.records import Record
from milestones.common.state.spec import StoreSpec
from milestones.common.topology.connected_stores import stores_of
from milestones.common.topology.nodes import ProcessorNode
from milestones.common.topology.processor import (
    FixedKeyProcessor,
    FixedKeyProcessorOperator,
    Processor,
    ProcessorContext,
    ProcessorOperator,
    check_supplier,
)
from milestones.common.topology.program import Operator, Process


class ProcessorWrapper:
    """Base of wrappers, for the setting `processor_wrapper`; each method returns the supplier that it was given.

    A method may return another supplier, whose attribute `stores` brings stores (KIP-401). It is asked for every
    processor of the topology, by the node's name as `describe()` has it: those of the user, and the operators of the
    DSL. These are processors without attributes; what they send on goes straight to their children, and the values of
    tables are tuples (new value, old value)."""

    def wrap_processor_supplier(
        self, node: str, supplier: Callable[[], Processor[Any, Any, Any, Any]]
    ) -> Callable[[], Processor[Any, Any, Any, Any]]:
        """The supplier in place of `supplier`, of the node of that name."""
        return supplier

    def wrap_fixed_key_processor_supplier(
        self, node: str, supplier: Callable[[], FixedKeyProcessor[Any, Any, Any]]
    ) -> Callable[[], FixedKeyProcessor[Any, Any, Any]]:
        """`wrap_processor_supplier` of the processors of `KStream.process_values`."""
        return supplier


class OperatorProcessor(Processor[Any, Any, Any, Any]):
    """An operator of the DSL as a processor."""

    _process: Process

    def __init__(self, operator: Operator) -> None:
        self._operator = operator

    def init(self, context: ProcessorContext[Any, Any]) -> None:
        super().init(context)
        inside = context._context
        self._process, self._scope = self._operator.bind(inside), inside.record

    def process(self, record: Record[Any, Any]) -> None:
        """Have the operator process the record."""
        key, value, timestamp, headers = record
        scope = self._scope
        before, scope.headers = scope.headers, list(headers) if headers else None
        try:
            self._process(key, value, timestamp)
        finally:
            scope.headers = before


def wrapped(node: ProcessorNode, wrapper: ProcessorWrapper) -> tuple[Operator, tuple[StoreSpec, ...]]:
    """The operator in place of the node's, and the stores that it brings. `TopologyError`."""
    operator = node.operator
    if isinstance(operator, FixedKeyProcessorOperator):
        given: Any = operator.supplier
        made: Any = wrapper.wrap_fixed_key_processor_supplier(node.name, given)
        return _checked(node, operator, given, made, FixedKeyProcessorOperator)
    if isinstance(operator, ProcessorOperator):
        given = operator.supplier
    else:

        def given() -> OperatorProcessor:
            return OperatorProcessor(operator)

    made = wrapper.wrap_processor_supplier(node.name, given)
    return _checked(node, operator, given, made, ProcessorOperator)


def _checked(
    node: ProcessorNode, operator: Operator, given: Any, made: Any, kind: Callable[[Any], Operator]
) -> tuple[Operator, tuple[StoreSpec, ...]]:
    if made is given:
        return operator, ()
    if made is None:
        raise TopologyError(f"the processor wrapper returns no supplier for {node.name}: return the one that was given")
    return kind(check_supplier(made, node.name)), stores_of(made, node.name)
