"""E20, E23: what is stored, read back equal and of the same type."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import threading
from collections import OrderedDict
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
import yaml
from freezegun import freeze_time
from hypothesis import given, settings
from hypothesis import strategies as st

from procrastinate_py.core.codec import Codec
from procrastinate_py.core.errors import PayloadError, UnstorableError, UntrustedTaskError
from procrastinate_py.core.registry import Registry
from tests.core.sample_tasks import (
    Address,
    Bag,
    Colour,
    Level,
    Mode,
    Outer,
    Perm,
    Point,
    SendEmail,
    SubStr,
    Word,
    Étude,
)

HERE = "tests.core.sample_tasks"
BERLIN = ZoneInfo("Europe/Berlin")


@pytest.fixture
def codec() -> Codec:
    return Codec(Registry(["tests"]))


def returned(value: Any) -> Any:
    """What comes back of a value that was stored and loaded by another codec, as a worker has its own."""
    text = Codec(Registry(["tests"])).checked_dump(Bag(value))
    text.encode()
    return Codec(Registry(["tests"])).load(text).value


def same(a: Any, b: Any) -> bool:
    """Equal, and of the same types throughout; nan is itself, 0.0 is not -0.0."""
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return a.hex() == b.hex()
    if isinstance(a, Decimal):
        return str(a) == str(b)
    if isinstance(a, datetime | time):
        return a == b and a.fold == b.fold and a.tzinfo == b.tzinfo and a.tzname() == b.tzname()
    if isinstance(a, dict):
        return len(a) == len(b) and all(same(p, q) for p, q in zip(a.items(), b.items(), strict=True))
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, set | frozenset):
        return sorted(map(repr, a)) == sorted(map(repr, b))
    if isinstance(a, Address):
        return same(vars(a), vars(b))
    return bool(a == b)


def test_a_task_is_its_class_and_its_state_in_words_that_a_person_can_read(codec: Codec) -> None:
    """E20"""
    text = codec.dump(SendEmail(to="a@example.com", tries=3, äöü="ß 🎉", ok=True, none=None, parts=[1, {"k": 2.5}]))
    assert text == (
        f'!{HERE}:SendEmail {{"to": "a@example.com", "tries": 3, "äöü": "ß 🎉", "ok": true, "none": null, '
        '"parts": [1, {"k": 2.5}]}'
    )


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ((1, "a"), '!tuple [1, "a"]'),
        ({3, 1}, "!set [1, 3]"),
        (frozenset("a"), '!frozenset ["a"]'),
        (Decimal("1.10"), '!decimal "1.10"'),
        (UUID(int=1), '!uuid "00000000-0000-0000-0000-000000000001"'),
        (b"\x00\xff", '!bytes "AP8="'),
        (date(2026, 1, 2), '!date "2026-01-02"'),
        (time(1, 2, 3), '!time "01:02:03"'),
        (datetime(2026, 1, 2, 3, 4, 5, 6, UTC), '!datetime "2026-01-02T03:04:05.000006+00:00"'),
        (datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=BERLIN), '!datetime "2026-10-25T02:30:00 Europe/Berlin fold=1"'),
        (timedelta(days=-1, microseconds=1), '!timedelta {"days": -1, "microseconds": 1}'),
        ({1: "a"}, '!map [[1, "a"]]'),
        (Colour.SCARLET, f'!{HERE}:Colour "RED"'),
        (Perm.R | Perm.X, f"!{HERE}:Perm 5"),
        (Point(1, 2), f"!{HERE}:Point [1, 2]"),
        (Address("Main St"), f'!{HERE}:Address {{"street": "Main St", "extra": null}}'),
        (1e16, "1.0e+16"),
        (-math.inf, "-.inf"),
        ("a\ud800\\", '!escaped "a\\\\ud800\\\\\\\\"'),
    ],
)
def test_every_kind_of_value_has_its_spelling(codec: Codec, value: Any, written: str) -> None:
    """E20"""
    assert codec.dump(Bag(value)) == f'!{HERE}:Bag {{"value": {written}}}'
    assert same(returned(value), value)


AWKWARD = [
    *(0, -1, 2**63, -(2**64), 10**600, 10**5000, -(10**5000)),
    *(0.0, -0.0, 1e16, 1e-7, 5e-324, 1.7976931348623157e308, math.inf, -math.inf, math.nan, 1.5e300),
    *("", " ", "\x00", "\x7f", "\x85", "\u2028\u2029", "\ufeff", "\ufffe\uffff", "=", "<<", "~", "null", "yes", "1.5"),
    *("\ud800", "\udc80x", "\ud83d\ude00", "😀", "a\tb\nc\rd\\", "---\n...", "- a", "# no comment", "!tag", "&a *a"),
    *(SubStr("a")[:], "x" * 100_000, "é" * 1000),
    *(
        [],
        {},
        [[]],
        [{}],
        {"": {}},
        {"k" * 2000: 1},
        {"\ud800": 1},
        {"a": {1: {None: {(1, 2): []}}}},
        {True: 1, 2.5: 2},
    ),
    *((), ((),), set(), frozenset(), {(1, frozenset([2]))}, {"=": 1, "<<": 2, "? ": 3}),
    *(Colour.RED, Colour.GREEN, Level.HIGH, Word.NO, Perm.R, Perm(0), Perm.R | Perm.W, Mode.A | Mode.B, Mode(8)),
    *({Colour.RED: Word.YES}, [Level.LOW], Point(1, Point(2, ())), Address("a", Address("b", {1}))),
    *(Decimal("-0"), Decimal("NaN"), Decimal("sNaN1"), Decimal("-Infinity"), Decimal("1E+999"), Decimal("0.1000")),
    *(timedelta(0), timedelta.max, timedelta.min, timedelta(microseconds=1)),
    *(date.min, date.max, time.min, time.max, time(1, 2, fold=1), time(1, tzinfo=UTC), time(1, tzinfo=BERLIN)),
    *(datetime.min, datetime.max, datetime(2026, 3, 1, fold=1), datetime(2026, 3, 1, tzinfo=ZoneInfo("UTC"))),
    *(datetime(2026, 10, 25, 2, 30, fold=fold, tzinfo=BERLIN) for fold in (0, 1)),
    datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=-3, minutes=-30, seconds=-1, microseconds=-5))),
    datetime(2026, 1, 1, fold=1, tzinfo=timezone(timedelta(hours=2), "Atlantis standard\ntime tzname=x")),
    datetime(2026, 1, 1, tzinfo=timezone(timedelta(0), "GMT")),
    *(b"", bytes(range(256)), UUID(int=2**128 - 1)),
]


@pytest.mark.parametrize("value", AWKWARD, ids=range(len(AWKWARD)))
def test_an_awkward_value_comes_back_equal_and_of_its_type(value: Any) -> None:
    """E20 H23"""
    assert same(returned(value), value)
    assert same(returned([value, {"k": (value,)}]), [value, {"k": (value,)}])


ZONES = st.one_of(
    st.none(),
    st.timezone_keys().map(ZoneInfo),
    st.timedeltas(timedelta(hours=-23), timedelta(hours=23)).filter(lambda offset: offset.seconds > 0).map(timezone),
    st.just(UTC),
)
SURROGATES = st.text(st.characters(), max_size=8)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    SURROGATES,
    st.binary(max_size=8),
    st.decimals(),
    st.uuids(),
    st.dates(),
    st.timedeltas(),
    st.sampled_from([*Colour, *Level, *Word, *Perm]),
)
MOMENTS = st.one_of(
    st.builds(lambda moment, fold: moment.replace(fold=fold), st.datetimes(timezones=ZONES), st.integers(0, 1)),
    st.builds(lambda moment, fold: moment.replace(fold=fold), st.times(), st.integers(0, 1)),
)
KEYS = st.one_of(
    st.none(), st.integers(), SURROGATES, st.uuids(), st.tuples(st.integers(), SURROGATES), st.sampled_from(Word)
)
VALUES = st.recursive(
    SCALARS | MOMENTS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(SURROGATES, inner, max_size=3),
        st.dictionaries(KEYS, inner, max_size=3),
        st.sets(KEYS, max_size=3),
        st.frozensets(KEYS, max_size=3),
        st.builds(Address, SURROGATES, inner),
        st.builds(Point, st.integers(), inner),
    ),
    max_leaves=8,
)
SETTINGS = settings(deadline=None, max_examples=400)


@SETTINGS
@given(VALUES)
def test_every_storable_value_comes_back_equal_and_of_its_type(value: Any) -> None:
    """E20 H23"""
    assert same(returned(value), value)


@SETTINGS
@given(VALUES)
def test_what_is_loaded_is_written_as_it_was(value: Any) -> None:
    """E23: the next attempt's text is a text like the first one's."""
    codec = Codec(Registry(["tests"]))
    text = codec.dump(Bag(value))
    assert codec.dump(codec.load(text)) == text


JSON_SHAPED = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), SURROGATES),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(SURROGATES, inner, max_size=4),
    max_leaves=12,
)


def assert_parsers_agree(text: str, value: Any) -> None:
    body = text.partition(" ")[2]
    assert same(json.loads(body), value)
    for loader in (yaml.SafeLoader, yaml.CSafeLoader):
        assert same(yaml.load(body, Loader=loader), value), loader  # noqa: S506
        tagged = yaml.compose(text, loader)
        assert tagged is not None and tagged.tag == text.partition(" ")[0]


@SETTINGS
@given(JSON_SHAPED)
def test_json_and_yaml_agree_on_all_that_is_written_without_a_tag(value: Any) -> None:
    """E20: the fast path reads what a strict YAML parser would."""
    text = Codec(Registry(["tests"])).dump(Bag(value))
    if text.count("!") == 1:
        assert_parsers_agree(text, {"value": value})


def test_json_and_yaml_agree_on_every_character() -> None:
    """E20"""
    for start in range(0, 0x11000, 0x100):
        text = "".join(map(chr, range(start, start + 0x100)))
        written = Codec(Registry(["tests"])).dump(Bag(text))
        if 0xD800 <= start < 0xE000:
            assert "!escaped" in written
        else:
            assert_parsers_agree(written, {"value": text})
        assert returned(text) == text


@pytest.mark.parametrize("length", [400, 499, 500, 501, 1023, 1024, 1025, 5000])
def test_a_long_key_is_read_by_every_parser(length: int) -> None:
    """E20: YAML looks for a key's colon within 1024 characters only."""
    text = Codec(Registry(["tests"])).dump(Bag({"k" * length: {"\x00" * (length // 6): 1}}))
    for loader in (yaml.SafeLoader, yaml.CSafeLoader):
        assert yaml.compose(text, loader) is not None
    assert returned({"k" * length: 1}) == {"k" * length: 1}


def test_plain_state_is_read_without_importing_yaml() -> None:
    """E20: the fast path."""
    program = (
        "import sys\nfrom procrastinate_py.core.codec import Codec\n"
        "from procrastinate_py.core.registry import Registry\n"
        "class T:\n    def run(self): ...\n"
        "t = T(); t.a = [1, {'b': 'c'}]; c = Codec(Registry()); text = c.checked_dump(t)\n"
        "assert c.load(text).a == t.a; print('yaml' in sys.modules, 'decimal' in sys.modules, text)"
    )
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert told.stdout == 'False False !__main__:T {"a": [1, {"b": "c"}]}\n'


@pytest.mark.parametrize("cls", [Outer.Inner, Étude])
def test_nested_classes_and_names_beyond_ascii_are_found_again(codec: Codec, cls: type[Bag]) -> None:
    """E20"""
    text = codec.checked_dump(cls(1))
    assert text.partition(" ")[0].isascii()
    for value in (1, {1}):
        loaded = Codec(Registry(["tests"])).load(codec.dump(cls(value)))
        assert type(loaded) is cls and loaded.value == value


def test_times_made_while_freezegun_holds_the_clock_are_stored(codec: Codec) -> None:
    """E46"""
    with freeze_time("2026-01-02 03:04:05"):
        moment, day = datetime.now(UTC), date.today()
        assert type(moment).__name__ == "FakeDatetime"
        loaded = codec.load(codec.checked_dump(Bag([moment, day])))
    assert loaded.value == [datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), date(2026, 1, 2)]
    assert same(
        codec.load(codec.dump(Bag([moment, day]))).value, [datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), date(2026, 1, 2)]
    )


def test_one_list_in_two_places_is_stored_twice(codec: Codec) -> None:
    shared = [1]
    assert codec.load(codec.dump(Bag([shared, shared]))).value == [[1], [1]]


class OddZone(ZoneInfo):
    pass


Local = type("Local", (), {"__qualname__": "f.<locals>.Local"})


@pytest.mark.parametrize(
    ("state", "message"),
    [
        (
            {"attachments": [threading.Lock()]},
            "SendEmail.attachments[0]: cannot store a Lock: convert it, or send an id",
        ),
        ({"parts": {"k": [threading.Lock()]}}, "SendEmail.parts['k'][0]: cannot store a Lock"),
        ({"parts": {1: {2: [object()]}}}, "SendEmail.parts[1][2][0]: cannot store an object"),
        ({"at": (Address("a", [len]),)}, "SendEmail.at[0].extra[0]: cannot store a builtin_function_or_method"),
        ({"p": Point(1, {object()})}, "SendEmail.p[1] (an element): cannot store an object"),
        ({"p": {(1, len): 1}}, "SendEmail.p (a key)[1]: cannot store a builtin_function_or_method"),
        ({"s": SubStr("x")}, "SendEmail.s: cannot store a SubStr"),
        ({"s": OrderedDict()}, "SendEmail.s: cannot store an OrderedDict"),
        ({"s": bytearray()}, "SendEmail.s: cannot store a bytearray"),
        ({"cls": Address}, "SendEmail.cls: cannot store a type"),
        (
            {"w": datetime(2026, 1, 1, tzinfo=OddZone("UTC"))},
            "SendEmail.w: cannot store a time of zone OddZone: use zoneinfo",
        ),
        (
            {"w": datetime(2026, 1, 1, tzinfo=timezone(timedelta(microseconds=1)))},
            "SendEmail.w: cannot store a time zone",
        ),
        ({"o": Outer()}, "SendEmail.o: cannot store an Outer"),
    ],
)
def test_what_cannot_be_stored_is_told_by_its_path_with_a_remedy(
    codec: Codec, state: dict[str, Any], message: str
) -> None:
    """E14 H23 U6"""
    with pytest.raises(UnstorableError) as caught:
        codec.checked_dump(SendEmail(**state))
    assert str(caught.value).startswith(message)
    assert isinstance(caught.value, PayloadError) and isinstance(caught.value, TypeError)


@pytest.mark.parametrize("build", ["list", "dict", "object", "map"])
def test_state_that_contains_itself_is_refused_with_the_place(codec: Codec, build: str) -> None:
    """E14"""
    loop: Any = {"list": [], "dict": {}, "object": Address("a"), "map": {1: 2}}[build]
    if build == "list":
        loop.append(loop)
    elif build == "object":
        loop.extra = loop
    else:
        loop["k"] = loop
    place = {"list": "[0]", "object": ".extra"}.get(build, "['k']")
    with pytest.raises(UnstorableError) as caught:
        codec.dump(SendEmail(x=loop))
    assert str(caught.value).startswith(f"SendEmail.x{place}: it contains itself")
    task = SendEmail()
    task.__dict__["me"] = [task]
    with pytest.raises(UnstorableError):
        codec.dump(task)


@pytest.mark.parametrize(
    "wrap", [lambda v: [v], lambda v: {"k": v}, lambda v: {1: v}, lambda v: (v,), lambda v: Address("", v)]
)
def test_what_nests_to_the_limit_comes_back_and_beyond_it_is_refused(codec: Codec, wrap: Any) -> None:
    """E14"""
    value: Any = 1
    for _ in range(98):
        value = wrap(value)
    loaded = codec.load(codec.checked_dump(Bag(value)))
    assert codec.dump(loaded) == codec.dump(Bag(value))
    for _ in range(5):
        value = wrap(value)
    with pytest.raises(UnstorableError, match="nested more than 100"):
        codec.checked_dump(Bag(value))


def test_a_bomb_of_shared_lists_is_refused_before_it_goes_off(codec: Codec) -> None:
    """E21"""
    bomb: Any = "x"
    for _ in range(90):
        bomb = [bomb, bomb]
    with pytest.raises(UnstorableError, match="max_task_bytes"):
        codec.dump(Bag(bomb))


def test_the_limit_counts_bytes_not_characters() -> None:
    """E21"""
    overhead = len(Codec(Registry(["tests"])).dump(Bag("")))
    for limit in (overhead + 300, overhead + 299):
        codec = Codec(Registry(["tests"]), max_task_bytes=limit)
        if limit == overhead + 300:
            assert codec.load(codec.checked_dump(Bag("€" * 100))).value == "€" * 100
        else:
            with pytest.raises(UnstorableError, match=f"more than the {limit} bytes"):
                codec.dump(Bag("€" * 100))
            with pytest.raises(PayloadError, match=f"more than the {limit} bytes"):
                codec.load(Codec(Registry(["tests"])).dump(Bag("€" * 100)))


def test_an_enum_from_an_untrusted_module_is_refused_where_it_is_delayed() -> None:
    """U5 E14"""
    codec = Codec(Registry())
    with pytest.raises(UntrustedTaskError, match=r"^Bag\.value\[0\]: cannot store a Colour.*trust="):
        codec.checked_dump(Bag([Colour.RED]))
    registry = Registry()
    registry.register(Colour)
    assert Codec(registry).load(Codec(registry).checked_dump(Bag([Colour.RED]))).value == [Colour.RED]


def test_state_that_another_thread_keeps_changing_is_stored_or_refused(codec: Codec) -> None:
    """E23: a body that outlived its timeout may still be at work on its attributes."""
    task, done = SendEmail(), threading.Event()

    def churn() -> None:
        number = 0
        while not done.is_set():
            task.__dict__[f"a{number % 50}"] = [number]
            task.__dict__.pop(f"a{(number + 25) % 50}", None)
            number += 1

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        for _ in range(300):
            codec.load(codec.dump(task))
    finally:
        done.set()
        thread.join()
