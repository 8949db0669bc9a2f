"""Wake-ups by LISTEN, on a connection of their own. Importing this loads the driver."""

from __future__ import annotations

from ._pg_connection import Connection
from ._pg_session import Session
from ._wake_thread import NoWakeUpsError


class Notifications:
    """A WakeSource: whatever is sent to the channel is a wake-up."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def fileno(self) -> int:
        return self._connection.fileno()

    def read(self) -> bool:
        raw = self._connection.pgconn
        raw.consume_input()
        came = False
        while raw.notifies() is not None:
            came = True
        return came

    def close(self) -> None:
        self._connection.close()


def listen_to(session: Session, queue: str) -> Notifications:
    """Raises PersisterUnavailableError; NoWakeUpsError where a pooler is between."""
    channel = session.statements.channel(queue)
    connection = session.open()
    try:
        if session.is_pooled:
            raise NoWakeUpsError(
                "a pooler is between here and PostgreSQL, and wake-ups don't come through one: the queue is looked at "
                "every update_period instead"
            )
        connection.execute(b'LISTEN "%s"' % channel.replace('"', '""').encode())
    except BaseException as error:
        connection.close()
        if isinstance(error, NoWakeUpsError):
            raise
        raise session.translated(error) from None
    return Notifications(connection)
