"""Dataclasses with slots whose methods are compiled when the first instance is made.

A process that answers one statement imports some 350 dataclasses and makes instances of a third
of them. ``dataclasses`` compiles six methods of each by itself, .4 ms a class: a quarter of the
time to a first answer. Here a class gets its slots at once, and the methods of
``dataclasses.dataclass`` when they can first be of use. What it is then is what ``dataclasses``
makes of it; before, ``dataclasses.fields`` does not know the class.
"""

from __future__ import annotations

import dataclasses
from dataclasses import InitVar, asdict, field, fields, replace
from threading import RLock
from typing import TYPE_CHECKING, Any

__all__ = ["InitVar", "asdict", "dataclass", "field", "fields", "replace"]

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls: type | None = None, /, *, slots: bool = False, **options: Any) -> Any:
        """As ``dataclasses.dataclass``: the same options, and a class that behaves the same."""

        def decorate(cls: type) -> type:
            return _slotted(cls, options) if slots else dataclasses.dataclass(**options)(cls)

        return decorate if cls is None else decorate(cls)


_WAITING: dict[type, tuple[type, dict[str, Any]]] = {}
"""Classes without an instance yet: what was declared, which has no slots, and the options."""

_LOCK = RLock()
"""Two threads may make the first instance."""

_NOT_STORED = ("ClassVar[", "InitVar[")


def _slotted(declared: type, options: dict[str, Any]) -> type:
    """The declared class with slots for its fields, and an ``__init__`` that completes it."""
    kinds = declared.__annotations__.items()
    fields = [name for name, kind in kinds if not kind.startswith(_NOT_STORED)]
    inherited = {name for base in declared.__mro__[1:-1] for name in _slots(base)}
    left_out = {*fields, "__dict__", "__weakref__"}  # a default would be in a slot's place
    namespace = {name: at for name, at in vars(declared).items() if name not in left_out}

    def first(self: Any, *arguments: Any, **named: Any) -> None:
        complete(made)
        vars(made)["__init__"](self, *arguments, **named)

    namespace |= {"__slots__": tuple(name for name in fields if name not in inherited)}
    namespace |= {"__init__": first, "__getstate__": _state, "__setstate__": _set_state}
    made = type(declared)(declared.__name__, declared.__bases__, namespace)
    made.__qualname__ = declared.__qualname__
    _WAITING[made] = declared, options
    return made


def complete(cls: type) -> None:
    """Give a class, and the classes that it is made from, the methods of a dataclass."""
    with _LOCK:
        for each in reversed(cls.__mro__):
            if each in _WAITING:
                declared, options = _WAITING[each]
                before = dict(vars(declared))
                dataclasses.dataclass(**options)(declared)
                after = vars(declared)
                new = {name for name, at in after.items() if before.get(name, before) is not at}
                names = (new | {"__init__"}) - declared.__annotations__.keys()
                for name in sorted(names, key="__init__".__eq__):  # last: it lets others in
                    setattr(each, name, after[name])
                del _WAITING[each]


def _slots(base: type) -> tuple[str, ...]:
    found = vars(base).get("__slots__", ())
    return (found,) if isinstance(found, str) else tuple(found)


def _state(self: Any) -> list[Any]:
    """The values of the fields in their order, as copies and pickles keep them."""
    return [getattr(self, each.name) for each in dataclasses.fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    complete(type(self))
    for each, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, each.name, value)
