"""The operators of the DSL, which process a node's records. There is one module per family of operators."""
