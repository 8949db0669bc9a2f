"""The tag, and the split of documents."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from procrastinate_py.core.stored_text import name_of_tag, split_documents, tag_of_text, written_tag


@settings(deadline=None, max_examples=300)
@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20).filter(str.isprintable))
def test_any_name_makes_a_tag_that_every_parser_reads_back(name: str) -> None:
    """E22"""
    tag = written_tag(name)
    assert tag.isascii() and " " not in tag
    assert name_of_tag(tag) == name
    for loader in (yaml.SafeLoader, yaml.CSafeLoader):
        node = yaml.compose(f"{tag} {{}}", loader)
        assert node is not None and node.tag == f"!{name}"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ('!a.b:C {"x": 1}', "a.b:C"),
        ("!a.b:C", "a.b:C"),
        ("!a.b:C\nx: 1", "a.b:C"),
        ("--- !a.b:C {}", "a.b:C"),
        ("---\n!a.b:C {}", "a.b:C"),
        ("# note\n\n%YAML 1.1\n--- # x\n  !a.b:C {}", "a.b:C"),
        ("\ufeff!a.b:C {}", "a.b:C"),
        ("!<!a.b:C> {}", "a.b:C"),
        ("!a:%C3%89tude {}", "a:Étude"),
        ("!a:%0A {}", "a:%0A"),
        ("!a:%FF {}", "a:%FF"),
        ("!" + "x" * 100_000, None),
        *((text, None) for text in ("", "hello", "!", "! x", "!!str x", "!x!y", "\n" * 1000, "# !a:B", "{a: !b:C {}}")),
        *((value, None) for value in (None, b"!a:B", 12)),
    ],
)
def test_the_name_of_a_stored_text_is_told(text: Any, name: str | None) -> None:
    """E50"""
    found = tag_of_text(text)
    assert found == name or (name is None and found == "x!y")


@settings(deadline=None, max_examples=300)
@given(st.text(st.characters(), max_size=60))
def test_telling_the_name_never_raises(text: str) -> None:
    """E50"""
    for each in (text, f"!{text}", f"--- {text}", f"!%{text}"):
        name = tag_of_text(each)
        assert name is None or (name.isprintable() and 0 < len(name) <= 500)


@pytest.mark.parametrize(
    ("text", "task", "options"),
    [
        ("!a:B {}", "!a:B {}", None),
        ('!a:B {"x": "---"}', '!a:B {"x": "---"}', None),
        ("!a:B {}\n---\npriority: 1\n", "!a:B {}\n", "priority: 1\n"),
        ("!a:B {}\n--- {priority: 1}", "!a:B {}\n", "{priority: 1}"),
        ("!a:B {}\n---", "!a:B {}\n", ""),
        ("--- !a:B {}", "--- !a:B {}", None),
        ("# x\n---\n!a:B {}\n---\nx: 1\n---\ny: 2", "# x\n---\n!a:B {}\n", "x: 1\n---\ny: 2"),
        ("!a:B\nx: |\n  text\n  ---\n  more\n", "!a:B\nx: |\n  text\n  ---\n  more\n", None),
        ("!a:B\nx: ---y\n---z: 1\n", "!a:B\nx: ---y\n---z: 1\n", None),
        ("!a:B {}\r\n---\r\nx: 1", "!a:B {}\r\n", "x: 1"),
    ],
)
def test_the_first_document_is_the_task_and_what_follows_its_options(text: str, task: str, options: str | None) -> None:
    """U8"""
    assert split_documents(text) == (task, options)
