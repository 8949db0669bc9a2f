"""What may happen to a connection: a TCP proxy between a store and its server that forwards, cuts, stalls, refuses.

with proxied(url) as proxy:                  proxy.url leads to the same server
    proxy.lose_replies(containing=b"settle") the next such request is carried out, and its reply never arrives
    proxy.lose_requests()                    the next request never arrives
    proxy.cut()                              all connections are reset, now
    proxy.stall()                            it takes connections and bytes, and passes nothing on ...
    proxy.refuse()                           ... or takes no connection at all ...
    proxy.forward()                          ... until now; ends every other fault, too
"""

from __future__ import annotations

import json
import re
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.servers import PATIENCE, Server

PROGRAM = Path(__file__).with_name("tcp_proxy_program.py")


class Proxy(Server):
    kind = "proxy"

    def __init__(self, url: str) -> None:
        super().__init__()
        # The last one: of an S3 URL the endpoint's, of the others the server's.
        address = re.findall(r"[\w.]+:\d+", url)[-1]
        self.url = url.replace(address, f"{self.host}:{self.port}")
        host, _, port = address.partition(":")
        self.target = {"target_host": host, "target_port": int(port)}
        self.control = self.folder / "control"

    def command(self) -> list[str]:
        what = {"host": self.host, "port": self.port, "control": str(self.control), **self.target}
        return [sys.executable, "-I", "-S", str(PROGRAM), json.dumps(what)]

    def answers(self) -> bool:
        with suppress(OSError):
            self.counts()
            return True
        return False

    def _tell(self, do: str, **more: object) -> dict[str, int]:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(PATIENCE)
            connection.connect(str(self.control))
            connection.sendall(json.dumps({"do": do, **more}).encode() + b"\n")
            with connection.makefile() as reply:
                return dict(json.loads(reply.readline()))

    def counts(self) -> dict[str, int]:
        """Since the start: connections taken, and of the faults request, reply and answer how many happened. ``open``:
        connections by now."""
        return self._tell("count")

    def await_fault(self, kind: str, times: int = 1) -> None:
        """Until so many have happened."""
        until = time.monotonic() + PATIENCE
        while self.counts().get(kind, 0) < times:
            assert time.monotonic() < until, f"no {kind} was lost"
            time.sleep(0.01)

    def forward(self) -> None:
        self._tell("forward")

    def cut(self) -> None:
        self._tell("cut")

    def stall(self) -> None:
        self._tell("stall")

    def refuse(self) -> None:
        self._tell("refuse")

    def delay(self, seconds: float) -> None:
        """Each request and each reply comes so much later."""
        self._tell("delay", seconds=seconds)

    def lose_requests(self, containing: bytes = b"", times: int = 1, skip: int = 0) -> None:
        """The connection is reset before the server hears of them. The first ``skip`` of such requests pass."""
        self._fault("request", containing, times, skip)

    def lose_replies(self, containing: bytes = b"", times: int = 1, skip: int = 0, after_bytes: int = 0) -> None:
        """The connection is reset once the server has answered, and so many bytes of that have passed."""
        self._fault("reply", containing, times, skip, after_bytes)

    def answer(self, answer: bytes, containing: bytes = b"", times: int = 1, skip: int = 0) -> None:
        """This is the reply to the next requests, of which the server never hears; then the connection ends."""
        self._fault("answer", containing, times, skip, answer=answer)

    def lose_some(self, rate: float, seed: int) -> None:
        """Of all requests this share isn't answered, half of them being carried out."""
        self._tell("chaos", rate=rate, seed=seed)

    def _fault(
        self, kind: str, containing: bytes, times: int, skip: int, after_bytes: int = 0, answer: bytes = b""
    ) -> None:
        texts = {"containing": containing.decode("latin-1"), "answer": answer.decode("latin-1")}
        self._tell("fault", kind=kind, times=times, skip=skip, after_bytes=after_bytes, **texts)


@contextmanager
def proxied(url: str) -> Iterator[Proxy]:
    proxy = Proxy(url)
    proxy.start()
    try:
        yield proxy
    finally:
        proxy.end()
