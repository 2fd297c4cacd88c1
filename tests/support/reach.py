"""Everything that an object holds on to."""

from __future__ import annotations

import gc
import types
from collections.abc import Iterator

CODE = (type, types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.CodeType)


def reachable(root: object) -> Iterator[object]:
    """Yield every object reachable from one, code and modules left out."""
    seen, stack = {id(root)}, [root]
    while stack:
        each = stack.pop()
        yield each
        for other in gc.get_referents(each):
            if id(other) not in seen and not isinstance(other, CODE):
                seen.add(id(other))
                stack.append(other)
