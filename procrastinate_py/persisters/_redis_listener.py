"""Wake-ups from Redis: a subscription on a connection of its own."""

from __future__ import annotations

from typing import Any

from ._redis_session import Session
from ._wake_thread import NoWakeUpsError, WakeSource

_READ_AT_ONCE = 65536


class Subscription:
    """A WakeSource. What is published after it was made is not missed."""

    def __init__(self, session: Session, channel: bytes) -> None:
        # By the older protocol, in which a message is a reply like any other.
        self._connection: Any = session.connection(2)
        try:
            self._connection.send_command("SUBSCRIBE", channel)
            self._connection.read_response()
            # The library has no name for it, and its own reading takes four times as long.
            self._socket: Any = self._connection._sock
            self._socket.setblocking(False)
        except Exception as error:
            self.close()
            if type(error).__name__ == "NoPermissionError":
                raise NoWakeUpsError(f"{session.translated(error)}: the user may not subscribe to channels") from None
            raise session.translated(error) from None

    def fileno(self) -> int:
        descriptor: int = self._socket.fileno()
        return descriptor

    def read(self) -> bool:
        # Whatever comes is a message on the one channel, so nobody needs to know what it says.
        came = False
        try:
            while self._socket.recv(_READ_AT_ONCE):
                came = True
        except BlockingIOError:
            return came
        except OSError as error:
            if type(error).__name__ == "SSLWantReadError":  # the same, with TLS
                return came
            raise
        raise ConnectionError("the server closed the connection")

    def close(self) -> None:
        try:
            self._connection.disconnect()
        except Exception:
            return


def subscribe(session: Session, channel: bytes) -> WakeSource:
    return Subscription(session, channel)
