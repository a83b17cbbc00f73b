"""`ProcessorWrapper`: user code around every processor of an application (KIP-1112).

    wrap_processor_supplier(node, supplier) -> supplier of processors that call those of the given one

*Guarantees*: a wrapper is called once for each processor node, with the node's name, when the application is made from
its topology. The returned supplier makes the node's processor in every task. If the wrapper returns the supplier that
it was given, nothing changes. The stores that a wrapped supplier brings are connected to the node.
*Assumes*: the `init` of a wrapping processor calls `init` of the wrapped processor, with the same context.
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
    """Base class of wrappers, for the setting `processor_wrapper`. The methods of this base class return the supplier
    that they are given.

    A subclass may return another supplier, whose attribute `stores` may bring stores (KIP-401). The methods are called
    for every processor of the topology: those of the user, and the operators of the DSL. `node` is the node's name, as
    in `describe()`. An operator of the DSL appears as a processor without attributes. Such an operator sends its
    results directly to its children, past the wrapper. In tables, the values are tuples (new value, old value).
    """

    def wrap_processor_supplier(
        self, node: str, supplier: Callable[[], Processor[Any, Any, Any, Any]]
    ) -> Callable[[], Processor[Any, Any, Any, Any]]:
        """Return the supplier for the node of this name. `supplier`: the one that it has without the wrapper."""
        return supplier

    def wrap_fixed_key_processor_supplier(
        self, node: str, supplier: Callable[[], FixedKeyProcessor[Any, Any, Any]]
    ) -> Callable[[], FixedKeyProcessor[Any, Any, Any]]:
        """Return the supplier for a node of `KStream.process_values`, as `wrap_processor_supplier` does for other
        nodes."""
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
        """Make the operator process the record."""
        key, value, timestamp, headers = record
        scope = self._scope
        before, scope.headers = scope.headers, list(headers) if headers else None
        try:
            self._process(key, value, timestamp)
        finally:
            scope.headers = before


def wrapped(node: ProcessorNode, wrapper: ProcessorWrapper) -> tuple[Operator, tuple[StoreSpec, ...]]:
    """Return the operator to use in place of the node's, and the stores that it brings. Raises `TopologyError`."""
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
