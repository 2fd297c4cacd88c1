"""Classes whose methods are compiled late behave as those of ``dataclasses``."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import random
import re
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import InitVar, field
from typing import Any, ClassVar, Generic, TypeVar

import pytest

from dpsql import records
from tests.support.effort import effort

T = TypeVar("T")
Decorator = Callable[..., Callable[[type], type]]
LATE: Decorator = vars(records)["dataclass"]
USUAL: Decorator = dataclasses.dataclass


def declared(dataclass: Decorator) -> dict[str, Any]:
    """Classes of every kind that the package has, and a few more."""

    class Shape(ABC):
        __slots__ = ()

        @abstractmethod
        def area(self) -> float: ...

    @dataclass(frozen=True, slots=True)
    class Square(Shape):
        side: int
        unit: str = "cm"
        kind: ClassVar[str] = "square"

        def area(self) -> float:
            return self.side**2

    @dataclass(frozen=True, slots=True)
    class Named(Square):
        unit: str = "m"
        name: str = field(default="", compare=False)
        tags: list[str] = field(default_factory=list, repr=False, hash=False)

    @dataclass(frozen=True, slots=True)
    class Doubled:
        half: InitVar[int]
        whole: int = field(init=False)

        def __post_init__(self, half: int) -> None:
            object.__setattr__(self, "whole", 2 * half)

    @dataclass(slots=True)
    class Open(Generic[T]):
        value: T
        times: int = 0

    @dataclass(frozen=True, slots=True, eq=False)
    class Same:
        value: int

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Words:
        first: int
        second: int = 2

    @dataclass(frozen=True, slots=True)
    class Own:
        value: int

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Own) and self.value % 10 == other.value % 10

        def __repr__(self) -> str:
            return f"<{self.value}>"

    @dataclass(slots=True, init=False)
    class Made:
        value: int

        def __init__(self, text: str) -> None:
            self.value = int(text)

    @dataclass(frozen=True, slots=True)
    class Nothing:
        pass

    return {name: made for name, made in locals().items() if isinstance(made, type)}


def outcome(work: Callable[[], object]) -> object:
    try:
        return work()
    except Exception as error:
        return type(error)


def behaviour(of: dict[str, Any]) -> list[object]:
    """What can be seen of the classes, written so that two declarations can be compared."""
    objects: dict[str, Callable[[], Any]] = {
        "square": lambda: of["Square"](3),
        "inches": lambda: of["Square"](3, unit="in"),
        "named": lambda: of["Named"](3, "m", "n", ["t"]),
        "other": lambda: of["Named"](3, "m", "o", ["t"]),
        "doubled": lambda: of["Doubled"](4),
        "open": lambda: of["Open"]([1]),
        "same": lambda: of["Same"](1),
        "words": lambda: of["Words"](first=1),
        "own": lambda: of["Own"](12),
        "likewise": lambda: of["Own"](22),
        "made": lambda: of["Made"]("7"),
        "nothing": lambda: of["Nothing"](),
    }
    seen: list[object] = []
    for name, make in objects.items():
        one, two = make(), make()
        seen += [name, repr(one), one == two, one != two, dataclasses.asdict(one)]
        seen += [outcome(lambda one=one, two=two: hash(one) == hash(two))]  # type: ignore[misc]
        seen += [one == each() for each in objects.values()]
        names = [each.name for each in dataclasses.fields(one)]
        seen += [names, type(one).__match_args__, type(one).__slots__, hasattr(one, "__dict__")]
        seen += [type(one).__qualname__, type(one).__module__]
        for at in (*names, "unheard_of"):
            seen.append(outcome(lambda one=one, at=at: setattr(one, at, 1)))  # type: ignore[misc]
        if type(one).__name__ not in ("Doubled", "Made", "Own", "Same"):
            seen.append(copy.deepcopy(one) == copy.copy(one) == dataclasses.replace(two))
    for wrong in ((), (1, 2, 3, 4, 5), ("x", "y")):
        seen += [outcome(lambda each=each, wrong=wrong: repr(each(*wrong))) for each in of.values()]  # type: ignore[misc]
    seen += [of["Named"](1).area(), of["Square"].kind, isinstance(of["Named"](1), of["Square"])]
    return seen


def test_they_behave_as_those_of_dataclasses() -> None:
    late, usual = behaviour(declared(LATE)), behaviour(declared(dataclasses.dataclass))
    assert len(late) > 250
    differ = [(mine, theirs) for mine, theirs in zip(late, usual, strict=True) if mine != theirs]
    # A frozen class of ``dataclasses`` with slots fails by accident at names that it lacks.
    assert {pair for pair in differ if dataclasses.FrozenInstanceError not in pair} == set()
    assert {theirs for _, theirs in differ} <= {TypeError}


NAMES = ("store", "MISSING", "made", "default_made", "other", "_hidden", "kind")
"""Of fields: some are names that a method might use itself."""


def drawn(
    chance: random.Random, known: dict[str, str]
) -> tuple[dict[str, str], dict[str, Any], dict[str, Any]]:
    """The annotations, the body and the options of a class; ``known`` are those of its base."""
    chosen = chance.sample(NAMES, chance.randint(0, 5))
    kinds = {
        name: chance.choice(("int", "int", "ClassVar[int]", "InitVar[int]")) for name in chosen
    }
    kinds |= {name: known[name] for name in chosen if name in known}
    options = {
        name: True
        for name in ("frozen", "kw_only", "slots")
        if chance.random() < (0.3 if name == "kw_only" else 0.6)
    }
    options |= {name: False for name in ("eq", "repr", "init") if chance.random() < 0.15}
    body: dict[str, Any] = {}
    optional = False
    for name in chosen:
        if kinds[name].startswith("ClassVar"):
            body[name] = chance.randint(0, 9)
            continue
        optional = optional or chance.random() < 0.3
        if not optional:
            if kinds[name] == "int" and chance.random() < 0.3:
                body[name] = field(compare=chance.random() < 0.5, repr=chance.random() < 0.5)
            continue
        which = chance.randrange(4 if kinds[name] == "int" else 1)
        if which == 0:
            body[name] = chance.randint(0, 9)
        elif which == 1:
            body[name] = field(
                default=chance.randint(0, 9), hash=chance.choice((None, True, False))
            )
        elif which == 2:
            body[name] = field(default_factory=list, compare=chance.random() < 0.5)
        else:
            body[name] = field(default=chance.randint(0, 9), init=False, repr=False)
    if chance.random() < 0.2:
        body["__eq__"] = lambda self, other: type(self) is type(other)
    if chance.random() < 0.1:
        body["__hash__"] = lambda self: 7
    if "InitVar[int]" in kinds.values() or chance.random() < 0.2:
        body["__post_init__"] = lambda self, *given: None
    return kinds, body, options


def seen_of(made: Any, seed: int) -> list[object]:
    """What can be seen of a class that was drawn, and of its instances."""
    chance = random.Random(seed)
    seen: list[object] = [made.__name__, made.__qualname__, hasattr(made, "__slots__")]
    instances: list[Any] = []
    for _ in range(12):
        place = [chance.randint(0, 2) for _ in range(chance.randint(0, 6))]
        named = {name: chance.randint(0, 2) for name in chance.sample(NAMES, chance.randint(0, 3))}
        instances.append(outcome(lambda p=place, n=named: made(*p, **n)))  # type: ignore[misc]
        instances.append(outcome(lambda p=place: made(*p)))  # type: ignore[misc]
    for one in instances:
        if isinstance(one, type):
            seen.append(one)
            continue
        stored = [each.name for each in dataclasses.fields(one)]
        values = [outcome(lambda o=one, n=name: getattr(o, n)) for name in stored]  # type: ignore[misc]
        shown = outcome(lambda one=one: re.sub(r" at 0x\w+", "", repr(one)))  # type: ignore[misc]
        seen += [shown, stored, values, outcome(lambda one=one: hash(one) == hash(one))]  # type: ignore[misc]
        seen += [outcome(lambda one=one: vars(dataclasses.replace(one)))]  # type: ignore[misc]
        if not any(isinstance(value, type) for value in values):  # else some were never set
            equal = [outcome(lambda a=one, o=other: a == o) for other in instances]  # type: ignore[misc]
            seen.append(equal)
            seen.append(outcome(lambda one=one: copy.copy(one) == one))  # type: ignore[misc]
        seen.append(one.__match_args__)
    for one in instances:
        for name in () if isinstance(one, type) else (*NAMES, "unheard_of"):
            for work in (setattr, delattr):
                rest = (1,) if work is setattr else ()
                seen.append(outcome(lambda o=one, n=name, w=work, r=rest: w(o, n, *r)))  # type: ignore[misc]
    return seen


def is_refusal(seen: object) -> bool:
    return isinstance(seen, type) and issubclass(seen, AttributeError)


def classes(dataclass: Decorator, seed: int) -> list[Any]:
    """A class drawn by chance, and half of the time one more that is derived from it."""
    chance = random.Random(seed)
    made: list[Any] = []
    kinds = dict[str, str]()
    first = dict[str, Any]()
    for name in ("First", "Second")[: chance.randint(1, 2)]:
        kinds, body, options = drawn(chance, kinds)
        if made:  # what is derived from it is as frozen, or dataclasses refuses
            options |= {"frozen": first.get("frozen", False), "kw_only": True}
            options["slots"] = options.get("slots", False) and first.get("slots", False)
        first = options
        namespace = {"__annotations__": kinds, "__module__": __name__, **body}
        try:
            found = dataclass(**options)(type(name, tuple(made), namespace))
            records.complete(found)
        except AttributeError:  # dataclasses itself trips over some defaults of a base
            break
        made.append(found)
    return made


def test_any_class_behaves_as_one_of_dataclasses() -> None:
    for seed in range(effort(400)):
        pairs = [[seen_of(each, seed) for each in classes(by, seed)] for by in (LATE, USUAL)]
        # A frozen class of ``dataclasses`` with slots fails by accident at names that it lacks.
        for mine, theirs in zip(*pairs, strict=True):
            differ = [
                (one, two)
                for one, two in zip(mine, theirs, strict=True)
                if one != two and not (two is TypeError and is_refusal(one))
            ]
            assert differ == [], seed


@records.dataclass(frozen=True, slots=True)
class Kept:
    """One that is unpickled where no instance was made."""

    value: int
    where: str = "here"


def test_a_pickle_completes_the_class() -> None:
    packed = pickle.dumps(Kept(5)).replace(b"Kept", b"Sent")
    unpacked = pickle.loads(packed)
    assert unpacked == Sent(5)
    assert repr(unpacked) == "Sent(value=5, where='here')"
    with pytest.raises(dataclasses.FrozenInstanceError):
        unpacked.value = 6


@records.dataclass(frozen=True, slots=True)
class Sent:
    value: int
    where: str = "here"


def test_threads_may_make_the_first_instance_together() -> None:
    for _ in range(50):
        made = declared(LATE)["Named"]
        start = threading.Barrier(4)
        seen: list[tuple[object, ...]] = []

        def work(
            made: Any = made, start: Any = start, seen: list[tuple[object, ...]] = seen
        ) -> None:
            start.wait()
            one = made(3, name="n")
            seen.append((repr(one), hash(made(3)) == hash(made(3, name="x")), one == made(3)))

        threads = [threading.Thread(target=work) for _ in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert len(seen) == 4
        assert len(set(seen)) == 1


def test_nothing_is_compiled_before_an_instance() -> None:
    made = declared(LATE)
    assert "__eq__" not in vars(made["Named"])
    made["Named"](1)
    assert "__eq__" in vars(made["Named"])
    assert "__eq__" in vars(made["Square"])  # what it is made from
    assert "__eq__" not in vars(made["Words"])
