"""The Python of a page of docs/, run as one module.

*Guarantees*: code blocks run in their order, as a reader who copies them all.
*Assumes*: nothing.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

from sybil import Sybil
from sybil.parsers.markdown import PythonCodeBlockParser

DOCS = Path(__file__).parents[2] / "docs"


def run(page: str) -> ModuleType:
    """The module that the blocks of a page make."""
    module = ModuleType(f"page_{Path(page).stem.replace('-', '_')}")
    sys.modules[module.__name__] = module  # where classes look their annotations up
    document = Sybil([PythonCodeBlockParser()]).parse(DOCS / page)
    document.namespace = vars(module)
    for example in document.examples():
        example.evaluate()
    return module
