"""Wake-ups from Redis: a subscription on a connection of its own."""

from __future__ import annotations

from typing import Any

from ._redis_session import Session
from ._wake_thread import NoWakeUpsError, WakeSource


class Subscription:
    """A WakeSource. What is published after it was made is not missed."""

    def __init__(self, session: Session, channel: bytes) -> None:
        # By the older protocol, in which a message is a reply like any other.
        self._connection: Any = session.connection(2)
        try:
            self._connection.send_command("SUBSCRIBE", channel)
            self._connection.read_response()
        except Exception as error:
            self.close()
            if type(error).__name__ == "NoPermissionError":
                raise NoWakeUpsError(f"{session.translated(error)}: the user may not subscribe to channels") from None
            raise session.translated(error) from None

    def fileno(self) -> int:
        descriptor: int = self._connection._sock.fileno()
        return descriptor

    def read(self) -> bool:
        came = False
        while self._connection.can_read(0):
            self._connection.read_response()
            came = True
        return came

    def close(self) -> None:
        try:
            self._connection.disconnect()
        except Exception:
            return


def subscribe(session: Session, channel: bytes) -> WakeSource:
    return Subscription(session, channel)
