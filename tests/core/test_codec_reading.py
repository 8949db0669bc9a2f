"""E20, E21: texts that a person edited, and texts that somebody made up."""

from __future__ import annotations

import re
import sys
import traceback
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from procrastinate_py.core import value_reader
from procrastinate_py.core.codec import Codec, split_documents, tag_of_text
from procrastinate_py.core.errors import PayloadError, UnknownTaskError, UnstorableError, UntrustedTaskError
from procrastinate_py.core.registry import Registry
from tests.core.sample_tasks import Address, Bag, Colour, InitCounts, Perm, Point, SendEmail

HERE = "tests.core.sample_tasks"


@pytest.fixture(params=["c", "python"])
def codec(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Codec:
    """Both of PyYAML's parsers: the one in C isn't built everywhere."""
    monkeypatch.setattr(value_reader, "_Loader", yaml.CSafeLoader if request.param == "c" else yaml.SafeLoader)
    return Codec(Registry(["tests"]))


MOMENT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("!@:SendEmail\nto: a@example.com\ntries: 3\n", {"to": "a@example.com", "tries": 3}),
        ("--- !@:SendEmail\nto: a\n...\n", {"to": "a"}),
        ("# edited\n---\n!@:SendEmail\nparts:\n- a\n- {k: [1, 2.5, ~]}\n", {"parts": ["a", {"k": [1, 2.5, None]}]}),
        ('  !@:SendEmail   {"to":"a" , "n":1e5}  # comment', {"to": "a", "n": 1e5}),
        ('!@:SendEmail {"to": "a", "n": 1E5, "set": !set [1]}', {"to": "a", "n": 1e5, "set": {1}}),
        ("!@:SendEmail\nbody: |\n  two\n  lines\n", {"body": "two\nlines\n"}),
        ("!@:SendEmail\nday: 2026-01-02\nat: 2026-01-02T03:04:05Z\n", {"day": date(2026, 1, 2), "at": MOMENT}),
        ("!@:SendEmail\nwait: !timedelta {weeks: 1, hours: 1.5}\n", {"wait": timedelta(days=7, hours=1.5)}),
        ("!@:SendEmail\nat: !datetime 2026-01-02 03:04:05+00:00\n", {"at": MOMENT}),
        ("!@:SendEmail\nc: !@:Colour RED\nf: !@:Perm R\n", {"c": Colour.RED, "f": Perm.R}),
        ("!@:SendEmail\na: !@:Address\n  street: x\np: !@:Point [1, 2]\n", {"a": Address("x"), "p": Point(1, 2)}),
        ("!@:SendEmail\neq: =\nmerge: <<\nraw: !!binary AP8=\n", {"eq": "=", "merge": "<<", "raw": b"\x00\xff"}),
        ("!@:SendEmail\nstr: !!str 1\nbang: ! 12\n1a: 0x1f\n", {"str": "1", "bang": "12", "1a": 31}),
        ("!<!@:SendEmail> {to: a}", {"to": "a"}),
        ("%YAML 1.1\n--- !@:SendEmail\nto: a\n", {"to": "a"}),
        *((text, {}) for text in ("!@:SendEmail\n", "!@:SendEmail {}", "!@:SendEmail", "!@%3ASendEmail {}")),
        ('!@:SendEmail {"to": "a"}\n---\npriority: 3\n', {"to": "a"}),
        ("!@:SendEmail\nto: a\n---\n*broken {\n", {"to": "a"}),
        ("!@:SendEmail\nto: a\n...\n---\npriority: 3\n", {"to": "a"}),
    ],
)
def test_a_text_edited_by_hand_is_read(codec: Codec, text: str, state: dict[str, Any]) -> None:
    """E20 U8"""
    filled = text.replace("@:", f"{HERE}:").replace("@%", f"{HERE}%")
    assert tag_of_text(filled) == f"{HERE}:SendEmail"
    loaded = codec.load(filled)
    assert type(loaded) is SendEmail and vars(loaded) == state


NO_TASKS = [
    *(
        "",
        " \n",
        "hello",
        "12",
        "[1, 2]",
        '{"a": 1}',
        "- a",
        "!!str x",
        "!!set {a}",
        "! x",
        "!",
        "!tuple [1]",
        "!set {}",
    ),
    *("!@:Missing {}", "!@.missing:X {}", "!@:NOT_A_CLASS {}", "!@:NoRun {}", "!@:Colour RED", "!nobody {}", "!@: {}"),
    *("!:SendEmail {}", "!@:Send-Email {}", "!@:Outer..Inner {}", "!@:Outer.Missing {}", "!@:Bag.run {}"),
]
NOT_TRUSTED = ["!subprocess:Popen {}", "!@:Popen {}", "!testsuite:X {}", "!os:system x", "!builtins:dict {}"]
BROKEN_TEXTS = [
    *(
        "&a !@:SendEmail {}",
        "*a",
        "!@:SendEmail {}\n!x",
        "!@:SendEmail {} extra",
        "!x!y {}",
        "!@%FF:X {}",
        "!@%ZZ:X {}",
    ),
    *("!!python/object/apply:os.system [ls]", "!!python/object:tests.core.sample_tasks.SendEmail {}"),
    *(
        "!@:FrozenSlots {nobody: 1}",
        "!@:OwnState {}",
        "!@:OwnState [1]",
        "!@:ListTask {}",
        "%YAML 9.9\n--- !@:SendEmail {}",
    ),
]
BROKEN_STATES = [
    *("[", "{a: *b}", "&a {b: *a}", "{a: &a x}", "{<<: {a: 1}}", "x", "''", "[1, 2]", "[1]", "{1: a}", "{[1]: 2}"),
    *('{"a": 1, "a": 2}', "{a: 1, a: 2}", "\na: 1\na: 2\n", "{b: {1: a, 1.0: b}}", '{"b": {"a": 1, "a": 2}}'),
    *("{b: {1: a, true: b}}", "{a: \x00}", "{a: '\ud800'}", "{a: 2026-99-99}", "{a: " + "9" * 5000 + "}"),
    "{a: 1" + ":1" * 5000 + "}",
]
BROKEN_VALUES = [
    *(
        "!@:SendEmail {}",
        "!@:NoRun {}",
        "!@:Colour BLUE",
        "!@:Colour 1",
        "!@:Address x",
        "!@:Point [1]",
        "!@:Colour [RED]",
    ),
    *("!!python/name:os.system ''", "!!python/object/apply:os.system [ls]", "!!omap [a: 1]", "!!set {a}", "!unknown x"),
    *(f"!{kind} x" for kind in ("datetime", "date", "time", "decimal", "uuid", "bytes", "timedelta", "set", "map")),
    *(f"!{kind} [[[]]]" for kind in ("set", "frozenset", "map", "timedelta", "date")),
    *("!map [[1, 2], [1, 3]]", "!timedelta {days: 1e300}", "!timedelta {eons: 1}", "!timedelta {days: true}"),
    *(
        f"!datetime '2026-01-01T00:00:00 {zone}'"
        for zone in ("Nowhere/At", "../../etc/passwd", "/etc/passwd", "x" * 5000)
    ),
    *("!!binary é", "!!int x", "!!bool x", "!!float x", "!!timestamp x", "!!null {}"),
]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        *((text, UnknownTaskError) for text in NO_TASKS),
        *((text, UntrustedTaskError) for text in NOT_TRUSTED),
        *((text, PayloadError) for text in BROKEN_TEXTS),
        *((f"!@:SendEmail {state}", PayloadError) for state in BROKEN_STATES),
        *((f"!@:SendEmail {{a: {value}}}", PayloadError) for value in BROKEN_VALUES),
    ],
)
def test_a_malformed_text_is_refused_in_a_known_way(codec: Codec, text: str, error: type[PayloadError]) -> None:
    """E21 U5 G8"""
    with pytest.raises(error):
        codec.load(text.replace("!@", f"!{HERE}"))


@pytest.mark.parametrize("value", [None, b"!a:B {}", 12, object()])
def test_what_is_no_text_is_no_task(codec: Codec, value: Any) -> None:
    """E30"""
    with pytest.raises(UnknownTaskError):
        codec.load(value)


@pytest.mark.parametrize(
    "text",
    [
        "[" * 20_000,
        "{" * 20_000,
        '{"a": ' * 20_000,
        "- " * 20_000,
        "? " * 3000,
        "!tuple [" * 2000,
    ],
)
def test_a_deep_document_is_refused(codec: Codec, text: str) -> None:
    """E21"""
    for body in (text, f'{{"a": {text}', f'{{"a": {text}}}'):
        with pytest.raises(PayloadError):
            codec.load(f"!{HERE}:SendEmail {body}")


def test_the_limit_of_depth_is_our_own_not_the_interpreter_s(codec: Codec) -> None:
    """E21"""
    with pytest.raises(PayloadError, match="nested too deeply"):
        codec.load(f"!{HERE}:SendEmail {{a: {'[' * 320}{']' * 320}}}")


@pytest.mark.parametrize("depth", [101, 400, 1500, 200_000])
def test_a_deep_text_in_json_is_survived(codec: Codec, depth: int) -> None:
    """E21: how deep JSON may be is Python's matter, and it differs from one to the next."""
    text = f'!{HERE}:SendEmail {{"a": {"[" * depth}{"]" * depth}}}'
    try:
        loaded = codec.load(text)
    except PayloadError:
        return
    with pytest.raises(UnstorableError, match="nested more than"):
        codec.dump(loaded)


def test_an_alias_bomb_is_refused(codec: Codec) -> None:
    """E21"""
    lines = ["a0: &a0 [x, x]", *(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 60))]
    with pytest.raises(PayloadError, match="aliases"):
        codec.load(f"!{HERE}:SendEmail\n" + "\n".join(lines))


def test_a_document_over_the_limit_is_not_even_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    """E21"""
    monkeypatch.setattr(value_reader, "ValueReader", None)
    codec = Codec(Registry(["tests"]))
    text = f"!{HERE}:SendEmail {{a: !set [{'x' * 2**20}]}}"
    with pytest.raises(PayloadError, match="max_task_bytes"):
        codec.load(text)
    codec.load(f'!{HERE}:SendEmail {{"a": 1}}')
    with pytest.raises(PayloadError, match="max_task_bytes"):
        codec.load(f'!{HERE}:SendEmail {{"a": "{"x" * 2**20}"}}')


def test_the_largest_document_is_stored_and_read() -> None:
    """E21"""
    codec = Codec(Registry(["tests"]))
    room = 2**20 - len(codec.dump(Bag("").__class__("")))
    assert codec.load(codec.checked_dump(Bag("x" * room))).value == "x" * room
    with pytest.raises(UnstorableError):
        codec.dump(Bag("x" * (room + 1)))


def test_init_is_not_called(codec: Codec) -> None:
    """E21"""
    text = codec.dump(InitCounts())
    made = InitCounts.made
    assert type(codec.load(text)) is InitCounts
    assert InitCounts.made == made


def test_an_untrusted_module_is_never_imported(codec: Codec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """E21 U5"""
    (tmp_path / "testsevil.py").write_text("raise SystemExit('imported')\nclass T:\n    def run(self): ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    for text in ("!testsevil:T {}", "!testsevil:T\n", f"!{HERE}:SendEmail {{a: !testsevil:T {{}}}}"):
        with pytest.raises(UntrustedTaskError, match=r"trust"):
            codec.load(text)
    assert "testsevil" not in sys.modules


def secretive_texts() -> list[str]:
    state = '{"password": "hunter2"'
    tagged = f"!{HERE}:SendEmail {{password: hunter2"
    return [
        f"!{HERE}:Secretive {state}}}",
        f"!{HERE}:Secretive {state}, s: !set []}}",
        f"!{HERE}:SendEmail {state}",
        f"!{HERE}:SendEmail {state}, hunter2",
        f"!{HERE}:SendEmail {state}, \x00}}",
        *(
            f"{tagged}, x: {bad}}}"
            for bad in ("*hunter2", "&hunter2 x", "!decimal hunter2", "!uuid hunter2", "!!int hunter2")
        ),
        *(
            f"{tagged}, x: {bad}}}"
            for bad in ("!date hunter2", "!timedelta {hunter2: 1}", "!!float hunter2", "!bytes hunter2é")
        ),
        *(
            f"{tagged}, x: {bad}}}"
            for bad in (f"!{HERE}:Colour hunter2", "{hunter2: 1, hunter2: 2}", "!!timestamp hunter2")
        ),
        f"{tagged}, x: !datetime '2026-01-01T00:00:00 hunter2'}}",
        f"!{HERE}:SendEmail hunter2",
        "hunter2",
        "{hunter2: 1}",
        f'!{HERE}:SendEmail {{"a": "hunter2",}} hunter2',
    ]


@pytest.mark.parametrize("text", secretive_texts())
def test_no_error_quotes_the_state(codec: Codec, text: str) -> None:
    """G8"""
    with pytest.raises(PayloadError) as caught:
        codec.load(text)
    assert "hunter2" not in "".join(traceback.format_exception(caught.value))
    assert caught.value.__cause__ is None and caught.value.__context__ is None


def test_an_error_in_the_text_is_told_by_line_and_column(codec: Codec) -> None:
    """E30"""
    with pytest.raises(PayloadError, match=rf"of {re.escape(HERE)}:SendEmail .*line 4, column"):
        codec.load(f"!{HERE}:SendEmail\na: 1\nb: [\n")
    with pytest.raises(PayloadError, match="line 3, column 1"):
        codec.load(f"!{HERE}:SendEmail\na: 1\na: 2\n")


CLASSES = ("SendEmail", "Colour", "Point", "Address", "FrozenSlots", "OwnState", "Perm", "SlottedSetstate")
FRAGMENTS = st.sampled_from(
    [
        *("!", "!!", "{", "}", "[", "]", ":", ": ", ", ", "\n", "- ", "? ", "&a ", "*a", "|", ">", '"', "'", "#", "%"),
        *("---", "...", "<<", "!set ", "!map ", "!tuple ", "!datetime ", "!bytes ", "!decimal ", "!timedelta "),
        *("!escaped ", "!!int ", "!!map ", '"a": 1', '"a"', "a: 1", "1e5", "0x1f", "1:30", "2026-01-01", ".nan"),
        *("null", "\x00", "\u2028", "\ud800", "\t", "\\", "é", "  ", *(f"!{HERE}:{name} " for name in CLASSES)),
    ]
)


@settings(deadline=None, max_examples=3000)
@given(
    st.one_of(
        st.lists(FRAGMENTS, max_size=12).map("".join),
        st.lists(FRAGMENTS, max_size=10).map(lambda parts: f"!{HERE}:SendEmail " + "".join(parts)),
        st.lists(FRAGMENTS, max_size=10).map(lambda parts: f'!{HERE}:SendEmail {{"a": ' + "".join(parts) + "}"),
        st.text(st.characters(), max_size=40),
    )
)
@example("\ufeff")
def test_whatever_the_text_loading_gives_a_task_or_a_payload_error(text: str) -> None:
    """E21 G8"""
    registry = Registry(["tests"])
    tag_of_text(text)
    task, rest = split_documents(text)
    assert len(task) + len(rest or "") <= len(text)
    try:
        loaded = Codec(registry).load(text)
    except PayloadError:
        return
    assert callable(type(loaded).run)


@settings(deadline=None, max_examples=1500)
@given(st.data())
def test_a_damaged_text_gives_a_task_or_a_payload_error(data: st.DataObject) -> None:
    """E21 G8"""
    text = Codec(Registry(["tests"])).dump(
        Bag([{1, 2}, Address("a", Colour.RED), Point(1, 2), datetime(2026, 1, 1), {"k": {1: b"x"}}, "\ud800", 1e300])
    )
    start = data.draw(st.integers(0, len(text)))
    stop = data.draw(st.integers(start, min(len(text), start + 5)))
    damaged = text[:start] + data.draw(st.lists(FRAGMENTS, max_size=2).map("".join)) + text[stop:]
    try:
        Codec(Registry(["tests"])).load(damaged)
    except PayloadError:
        pass


def test_a_slow_number_is_refused_rather_than_computed(codec: Codec) -> None:
    """G8: sexagesimal numbers are converted in quadratic time."""
    with pytest.raises(PayloadError, match="number is too long"):
        codec.load(f"!{HERE}:SendEmail {{a: 1{':59' * 300_000}}}")


@pytest.mark.parametrize(
    "path", ["tests/../../x:T", "tests./../../evil:T", "tests.\x00:T", "tests..core:T", ".tests:T", "tests.core.:T"]
)
def test_a_tag_is_never_a_path(codec: Codec, path: str) -> None:
    """G8"""
    with pytest.raises(UnknownTaskError):
        codec.registry.resolve(path)
