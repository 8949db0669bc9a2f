"""What goes over a connection to Redis.

The library opens it, with its user, password and TLS. Calls are said here: its own way costs more than the server.
"""

from __future__ import annotations

import select
from collections.abc import Sequence
from typing import Any

Argument = bytes | str | int
_READ_AT_ONCE = 65536


class Refused(Exception):
    """The server's own answer that it won't; the connection is as good as before."""

    def __init__(self, answer: str) -> None:
        super().__init__(answer)
        self.code = answer.partition(" ")[0]


class Wire:
    """Used by one thread at a time, and no more once a call was cut short."""

    def __init__(self, connection: Any) -> None:
        """``connection`` is the library's, and open."""
        self._connection = connection
        self._socket: Any = connection._sock  # the library has no name for it
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)
        self._got = bytearray()
        self._at = 0

    def ask(self, command: bytes) -> Any:
        """The reply. Raises Refused, or OSError where the connection is lost or nothing comes within its time limit."""
        self._socket.sendall(command)
        reply = self._reply()
        del self._got[:]
        self._at = 0
        if isinstance(reply, Refused):
            raise reply
        return reply

    def is_stale(self) -> bool:
        """Whether anything came that nobody asked for: as a rule, that the server closed the connection."""
        return bool(self._poll.poll(0))

    def close(self) -> None:
        """Never raises."""
        try:
            self._connection.disconnect()
        except Exception:
            return

    def _reply(self) -> Any:
        while True:
            line = self._line()
            kind, rest = line[:1], line[1:]
            match kind:
                case b"$" | b"=":
                    return self._text(int(rest))
                case b":":
                    return int(rest)
                case b"+":
                    return bytes(rest)
                case b"-":
                    return Refused(rest.decode("utf-8", "replace"))
                case b"*" | b"~":
                    return None if rest == b"-1" else [self._reply() for _ in range(int(rest))]
                case b"%":
                    return [self._reply() for _ in range(int(rest) * 2)]
                case b">":  # news that nobody asked for; the reply comes after it
                    for _ in range(int(rest)):
                        self._reply()
                case b"_":
                    return None
                case b"," | b"#" | b"(":
                    return bytes(rest)
                case _:
                    raise ConnectionError("what came is no reply of a Redis server")

    def _line(self) -> bytearray:
        while (end := self._got.find(b"\r\n", self._at)) < 0:
            self._read_more()
        line = self._got[self._at : end]
        self._at = end + 2
        return line

    def _text(self, length: int) -> bytes | None:
        if length < 0:
            return None
        end = self._at + length
        while len(self._got) < end + 2:
            self._read_more()
        text = bytes(memoryview(self._got)[self._at : end])
        self._at = end + 2
        return text

    def _read_more(self) -> None:
        came = self._socket.recv(_READ_AT_ONCE)
        if not came:
            raise ConnectionError("the server closed the connection")
        self._got += came


def packed(words: Sequence[Argument]) -> bytes:
    """Words as they're sent."""
    parts = []
    for word in words:
        if isinstance(word, str):
            word = word.encode()
        elif isinstance(word, int):
            word = b"%d" % word
        parts.append(b"$%d\r\n%b\r\n" % (len(word), word))
    return b"".join(parts)
