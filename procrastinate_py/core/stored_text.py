"""The outside of a stored task: its tag, and where its document ends and another begins."""

from __future__ import annotations

import functools
import re

LONGEST_NAME = 500
"""Characters of a stored name, so that it fits a log line and every parser."""

_UNSAFE = re.compile(r"[^A-Za-z0-9_.:\-]")
_PLAIN = re.compile(r"![A-Za-z0-9_.:%\-]+")
_ESCAPES = re.compile(r"(?:%[0-9A-Fa-f]{2})+")
_PRELUDE = re.compile(r"\ufeff?(?:[ \t]*(?:[%#][^\r\n]*)?(?:\r\n?|\n))*[ \t]*(?:---\s+(?:#[^\r\n]*\s+)*)?")
_TAG = re.compile(r"!(?P<plain>[^\s!<]\S*)|!<!(?P<verbatim>[^\s>]+)>")

# YAML ends a document here wherever the line stands, even inside a quoted or a block scalar; YAML 1.1 counts
# five kinds of line break.
_BREAK = "\r\n\x85\u2028\u2029"
_MARKER = re.compile(rf"(?:\A\ufeff?|(?<=[{_BREAK}]))---(?=[ \t{_BREAK}]|\Z)")
_NO_CONTENT = re.compile(rf"\ufeff?(?:[ \t]*(?:[%#][^{_BREAK}]*)?(?:[{_BREAK}]|\Z))*\Z")


@functools.lru_cache(maxsize=1024)
def written_tag(name: str) -> str:
    """The tag as it's written: all but plain ASCII letters, digits and ``_.:-`` is percent-encoded UTF-8.

    Raises ValueError for a name that has no UTF-8.
    """
    return "!" + _UNSAFE.sub(lambda found: "".join(f"%{byte:02X}" for byte in found[0].encode()), name)


def is_plain_tag(tag: str) -> bool:
    """Whether it's a tag of one class, in the characters that ``written_tag`` uses."""
    return _PLAIN.fullmatch(tag) is not None


def name_of_tag(tag: str) -> str:
    """The stored name that a written tag (with its ``!``) stands for. Raises ValueError for broken escapes."""
    return _ESCAPES.sub(lambda found: bytes.fromhex(found[0].replace("%", "")).decode(), tag[1:])


def tag_of_text(text: object) -> str | None:
    """The stored name of the class, for listings and logs; None where the text names none. Never raises."""
    if not isinstance(text, str):
        return None
    prelude = None if text.startswith("!") else _PRELUDE.match(text)
    found = _TAG.match(text, prelude.end() if prelude else 0)
    if found is None:
        return None
    written = found["plain"] or found["verbatim"]
    if len(written) > LONGEST_NAME * 12:
        return None
    try:
        name = name_of_tag("!" + written)
    except ValueError:
        name = written
    name = name if name.isprintable() else written
    return name if len(name) <= LONGEST_NAME and name.isprintable() else None


def split_documents(text: str) -> tuple[str, str | None]:
    """The task's document, and what follows it (the options' document, without its ``---``) or None."""
    if "---" not in text:
        return text, None
    for marker in _MARKER.finditer(text):
        if not _NO_CONTENT.match(text, 0, marker.start()):
            return text[: marker.start()], text[marker.end() :].lstrip(" \t\r\n")
    return text, None
