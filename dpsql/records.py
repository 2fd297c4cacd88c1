"""Dataclasses whose methods cost little to make, and with slots are made for the first instance.

And ``cached_property``, an attribute that is worked out when it is first asked for.

A process that answers one statement imports some 350 dataclasses and makes instances of a third
of them. ``dataclasses`` writes six methods of each as text and compiles them one by one, .5 ms a
class: a quarter of the time to a first answer. Here ``dataclasses`` reads the fields, ``__init__``
alone is compiled, and what else a class gets are functions of the names of its fields. A class with
slots has them at once, and gets its methods when they can first be of use; before, as long as there
is no instance, ``dataclasses.fields`` does not know it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import MISSING, FrozenInstanceError, InitVar, asdict, field, fields, replace
from functools import cache
from operator import attrgetter
from reprlib import recursive_repr
from threading import RLock
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, NamedTuple

from dpsql.forks import awaited

__all__ = ["InitVar", "asdict", "cached_property", "dataclass", "field", "fields", "replace"]

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
    from functools import cached_property as cached_property
else:

    class cached_property:  # noqa: N801
        """As ``functools.cached_property`` of Python 3.12.

        That of 3.11 has a lock for all instances of a class: threads wait for each other, and a
        child for ever for one that had it when its parent forked.
        """

        def __init__(self, find: Callable[[Any], Any]) -> None:
            self.find, self.__doc__ = find, find.__doc__

        def __set_name__(self, owner: type, name: str) -> None:
            self.name = name

        def __get__(self, instance: Any, owner: type | None = None) -> Any:
            if instance is None:
                return self
            found = instance.__dict__[self.name] = self.find(instance)
            return found

    def dataclass(cls: type | None = None, /, *, slots: bool = False, **options: Any) -> Any:
        """As ``dataclasses.dataclass``, with those options: a class that behaves the same."""
        wanted = Methods(**options)

        def decorate(cls: type) -> type:
            if slots:
                return _slotted(cls, wanted)
            complete(cls)  # its fields are also those of the classes that it is made from
            _give_methods(cls, cls, wanted)
            return cls

        return decorate if cls is None else decorate(cls)


class Methods(NamedTuple):
    """The methods that a class gets, by option, and whether fields are given by name alone."""

    init: bool = True
    repr: bool = True
    eq: bool = True
    frozen: bool = False
    kw_only: bool = False


_WAITING: dict[type, tuple[type, Methods]] = {}
"""Classes without an instance yet: what was declared, which has no slots, and the options."""

_LOCK = awaited(RLock())
"""Two threads may make the first instance, and a fork waits for it."""

_INIT_VAR = "InitVar["
_NOT_STORED = ("ClassVar[", _INIT_VAR)


def _slotted(declared: type, options: Methods) -> Any:
    """The declared class with slots for its fields, and an ``__init__`` that completes it."""
    kinds = declared.__annotations__.items()
    fields = [name for name, kind in kinds if not kind.startswith(_NOT_STORED)]
    inherited = {name for base in declared.__mro__[1:-1] for name in _slots(base)}
    left_out = {*fields, "__dict__", "__weakref__"}  # a default would be in a slot's place
    namespace = {name: at for name, at in vars(declared).items() if name not in left_out}

    def first(self: Any, *arguments: Any, **named: Any) -> None:
        complete(made)
        made.__init__(self, *arguments, **named)

    namespace |= {"__slots__": tuple(name for name in fields if name not in inherited)}
    namespace |= {"__init__": first, "__getstate__": _state, "__setstate__": _set_state}
    made: Any = type(declared)(declared.__name__, declared.__bases__, namespace)
    made.__qualname__ = declared.__qualname__
    _WAITING[made] = declared, options
    return made


def complete(cls: type) -> None:
    """Give a class, and the classes that it is made from, the methods of a dataclass."""
    with _LOCK:
        for each in reversed(cls.__mro__):
            if each in _WAITING:
                _give_methods(each, *_WAITING[each])
                del _WAITING[each]


def _give_methods(cls: Any, declared: type, options: Methods) -> None:
    """Give a class the methods of its fields, which ``dataclasses`` reads from what was declared.

    ``__init__`` comes last: until then whoever makes an instance waits.
    """
    known = dict(vars(declared))
    declared.__doc__ = "."  # where there is none, the signature would be written for one
    dataclasses.dataclass(init=False, repr=False, eq=False, kw_only=options.kw_only)(declared)
    declared.__doc__ = known["__doc__"]
    if cls is not declared:
        for name in vars(declared).keys() - known.keys():
            setattr(cls, name, vars(declared)[name])
    every = [each for each in _fields(declared) if not each.type.startswith("ClassVar[")]
    stored = [each for each in every if not each.type.startswith(_INIT_VAR)]
    methods = _make_methods(cls, stored, options)
    if "__eq__" in known and known.get("__hash__", known) is None:
        del known["__hash__"]  # Python forbids it beside an __eq__ that is written, by itself
    for name, method in methods.items():
        if name not in known:
            if method is not None:
                method.__name__, method.__qualname__ = name, f"{cls.__qualname__}.{name}"
            setattr(cls, name, method)
    if options.init and "__init__" not in known:
        cls.__init__ = _make_init(cls, every, options.frozen, cls is not declared)
    elif "__init__" in known:
        cls.__init__ = known["__init__"]
    elif cls is not declared:
        del cls.__init__


def _fields(declared: type) -> list[dataclasses.Field[Any]]:
    """Return the fields of a class in order, those for ``__init__`` or the class alone as well."""
    return list(vars(declared)["__dataclass_fields__"].values())


def _make_methods(
    cls: type, stored: list[dataclasses.Field[Any]], options: Methods
) -> dict[str, Any]:
    """Return the methods but ``__init__``, by their names."""
    methods: dict[str, Any] = {}
    if options.eq:
        methods["__eq__"] = _make_eq(_values([each.name for each in stored if each.compare]))
        methods["__hash__"] = None
        if options.frozen:
            kept = [each.compare if each.hash is None else each.hash for each in stored]
            names = [each.name for each, is_kept in zip(stored, kept, strict=True) if is_kept]
            methods["__hash__"] = _make_hash(_values(names))
    if options.repr:
        methods["__repr__"] = _make_repr([each.name for each in stored if each.repr])
    if options.frozen:
        methods |= _make_frozen(cls, {each.name for each in stored})
    return methods


def _make_init(
    cls: type, every: list[dataclasses.Field[Any]], frozen: bool, has_slots: bool
) -> Any:
    """Make ``__init__``: fields become arguments, in their order, those by name alone last.

    Its text calls the fields _0, _1, ... and classes of one shape have one: compiling is dear.
    """
    known: dict[str, Any] = {"__MISSING": MISSING, "__store": object.__setattr__}
    by_place: list[str] = []
    by_name: list[str] = []
    passed: list[str] = []
    lines: list[str] = []
    defaults: dict[str, Any] = {}
    for place, each in enumerate(every):
        name = value = f"_{place}"
        default, has_default = each.default, True
        if each.default_factory is not MISSING:
            default, known[f"__make{name}"] = MISSING, each.default_factory
            value = f"__make{name}()" + (f" if {name} is __MISSING else {name}" * each.init)
        elif each.default is MISSING:
            has_default = False
        elif not each.init:
            value, known[f"__default{name}"] = f"__default{name}", each.default
            has_default = has_slots  # else the class has it for all instances
        if each.init:
            (by_name if each.kw_only else by_place).append(name)
            if has_default:
                defaults[name] = default
            elif defaults.keys() & {*by_place} and not each.kw_only:
                raise TypeError(f"field {each.name!r} has no default, and one before it has")
        if each.type.startswith(_INIT_VAR):
            passed.append(name)
        elif each.init or has_default:
            lines.append(
                f"__store(self, {name!r}, {value})" if frozen else f"self.{name} = {value}"
            )
    if hasattr(cls, "__post_init__"):
        lines.append(f"self.__post_init__({', '.join(passed)})")
    arguments = ["self", *by_place, *(["*"] if by_name else []), *by_name]
    text = f"def __init__({', '.join(arguments)}): {'; '.join(lines) or 'pass'}"
    names = {f"_{place}": each.name for place, each in enumerate(every)}
    code = _renamed(_compiled(text), names)
    init = FunctionType(
        code, known, "__init__", tuple(defaults[name] for name in by_place if name in defaults)
    )
    init.__kwdefaults__ = {names[name]: defaults[name] for name in by_name if name in defaults}
    init.__module__, init.__qualname__ = cls.__module__, f"{cls.__qualname__}.__init__"
    init.__annotations__ = {each.name: each.type for each in every if each.init} | {"return": None}
    return init


@cache
def _compiled(text: str) -> CodeType:
    """The code of a function of which one has the text."""
    found: CodeType = compile(text, "<__init__>", "exec").co_consts[0]
    return found


def _renamed(code: CodeType, names: dict[str, str]) -> CodeType:
    """The same code with other names of variables, attributes and texts."""

    def new(old: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(names.get(each, each) for each in old)

    return code.replace(
        co_varnames=new(code.co_varnames),
        co_names=new(code.co_names),
        co_consts=new(code.co_consts),
    )


def _values(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    """A function that takes the values of some fields, as a tuple, from an instance."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda self: tuple(getattr(self, name) for name in names)


def _make_eq(values: Callable[[Any], tuple[Any, ...]]) -> Any:
    def is_equal(self: Any, other: object) -> Any:
        return values(self) == values(other) if type(other) is type(self) else NotImplemented

    return is_equal


def _make_hash(values: Callable[[Any], tuple[Any, ...]]) -> Any:
    return lambda self: hash(values(self))


def _make_repr(names: list[str]) -> Any:
    def show(self: Any) -> str:
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{type(self).__qualname__}({shown})"

    return recursive_repr()(show)


def _make_frozen(cls: Any, names: set[str]) -> dict[str, Any]:
    """The two methods that let nobody change an instance."""

    def refuse_to_set(self: Any, name: str, value: object) -> None:
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def refuse_to_delete(self: Any, name: str) -> None:
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    return {"__setattr__": refuse_to_set, "__delattr__": refuse_to_delete}


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
