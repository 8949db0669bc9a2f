"""Every promise has a test that names it."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import defaultdict
from pathlib import Path

TESTS = Path(__file__).parent

PROMISES = [f"E{number}" for number in range(1, 51)] + [f"U{number}" for number in range(1, 36)]

LATER = {
    "U16": "about deadlines moved and swept: expiration beyond run time isn't built yet",
    "U17": "about env.expire, which isn't built yet",
    "U18": "about env.retry, which isn't built yet",
    "U19": "about cancellation, which isn't built yet",
}
"""Not promised yet, each with the reason."""


def numbers_in(text: str) -> set[str]:
    """E4 and U30, and each of E4-E7 (written so, or E4 to E7)."""
    found = set(re.findall(r"\b[EU]\d+\b", text))
    for kind, first, last in re.findall(r"\b([EU])(\d+)\s*(?:-|to)\s*[EU]?(\d+)\b", text):
        found |= {f"{kind}{number}" for number in range(int(first), int(last) + 1)}
    return found


def promises_named(folder: Path) -> dict[str, set[str]]:
    """From number to the tests that name it in their docstring or in a comment of theirs; a class's docstring
    counts for its tests."""
    named: dict[str, set[str]] = defaultdict(set)
    for path in folder.rglob("test_*.py"):
        source = path.read_text()
        comments = {
            token.start[0]: token.string
            for token in tokenize.generate_tokens(io.StringIO(source).readline)
            if token.type == tokenize.COMMENT
        }
        for node, inherited in functions_that_test(ast.parse(source)):
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)]) - 1
            own = [text for line, text in comments.items() if first <= line <= (node.end_lineno or first)]
            for number in numbers_in(" ".join([inherited, ast.get_docstring(node) or "", *own])):
                named[number].add(f"{path.name}::{node.name}")
    return named


def functions_that_test(tree: ast.Module) -> list[tuple[ast.FunctionDef | ast.AsyncFunctionDef, str]]:
    found = []
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name.startswith("Test"):
            members, inherited = node.body, ast.get_docstring(node) or ""
        else:
            members, inherited = [node], ""
        for member in members:
            if isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef) and member.name.startswith("test"):
                found.append((member, inherited))
    return found


def test_each_promise_is_named_by_a_test() -> None:
    named = promises_named(TESTS)
    assert [number for number in PROMISES if number not in named and number not in LATER] == []


def test_what_is_left_for_later_is_not_promised_elsewhere() -> None:
    assert set(LATER) <= set(PROMISES)
    assert all(reason for reason in LATER.values())


def test_a_promise_that_only_a_helper_names_does_not_count(tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text(
        '"""E1"""\n'
        "def helper():\n    '''E2'''\n"
        "def test_one():\n    '''E3, E5-E7'''\n"
        "# E8\n@mark\ndef test_two():\n    pass  # E9\n"
        "class TestThese:\n    '''U4'''\n    def test_three(self): ...\n"
    )
    assert set(promises_named(tmp_path)) == {"E3", "E5", "E6", "E7", "E8", "E9", "U4"}
