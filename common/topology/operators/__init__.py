"""What processors of the DSL do with a record, one module per family of operators."""
