"""The proxy itself, a program of its own (tests/tcp_proxy.py starts it): forks of the tests hold none of its sockets,
so that it can end connections as it likes. Takes orders on a unix socket, a line of JSON each."""

from __future__ import annotations

import asyncio
import json
import random
import socket
import struct
import sys
from dataclasses import dataclass, field
from typing import Any

CHUNK = 1 << 16


@dataclass
class Fault:
    """What happens to the next requests that hold ``containing``: ``kind`` is request, reply or answer."""

    kind: str
    times: int = 1
    skip: int = 0
    after_bytes: int = 0
    containing: bytes = b""
    answer: bytes = b""


@dataclass
class Proxy:
    host: str
    port: int
    target: tuple[str, int]
    open: asyncio.Event = field(default_factory=asyncio.Event)
    delay: float = 0.0
    faults: list[Fault] = field(default_factory=list)
    chance: random.Random | None = None
    rate: float = 0.0
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("connections", "request", "reply", "cut"), 0))
    connections: set[Connection] = field(default_factory=set)
    listener: asyncio.Server | None = None

    async def listen(self) -> None:
        if self.listener is None:
            self.listener = await asyncio.start_server(self.take, self.host, self.port)

    async def refuse(self) -> None:
        if self.listener is not None:
            self.listener.close()
            self.listener = None
        self.cut()

    def cut(self) -> None:
        for connection in list(self.connections):
            connection.reset()

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.counts["connections"] += 1
        connection = Connection(self, reader, writer)
        self.connections.add(connection)
        try:
            await connection.run()
        finally:
            self.connections.discard(connection)
            connection.close()

    async def passing(self) -> None:
        await self.open.wait()
        if self.delay:
            await asyncio.sleep(self.delay)

    def fault_for(self, request: bytes) -> Fault | None:
        for fault in self.faults:
            if fault.containing in request:
                if fault.skip > 0:
                    fault.skip -= 1
                    continue
                fault.times -= 1
                if fault.times == 0:
                    self.faults.remove(fault)
                return fault
        if self.chance is not None and self.chance.random() < self.rate:
            return Fault(self.chance.choice(["request", "reply"]))
        return None

    async def obey(self, order: dict[str, Any]) -> None:
        match order["do"]:
            case "forward":
                self.faults, self.chance, self.delay = [], None, 0.0
                self.open.set()
                await self.listen()
            case "refuse":
                await self.refuse()
            case "stall":
                self.open.clear()
            case "cut":
                self.cut()
            case "delay":
                self.delay = order["seconds"]
            case "chaos":
                self.chance, self.rate = random.Random(order["seed"]), order["rate"]
            case "fault":
                texts = {name: order.pop(name).encode("latin-1") for name in ("containing", "answer")}
                self.faults.append(Fault(order["kind"], order["times"], order["skip"], order["after_bytes"], **texts))


class Connection:
    def __init__(self, proxy: Proxy, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.proxy = proxy
        self.reader, self.writer = reader, writer
        self.above: asyncio.StreamWriter | None = None
        self.left: int | None = None
        """How many bytes of a reply still pass before it's cut."""
        self.answered = False

    async def run(self) -> None:
        try:
            await self.proxy.open.wait()
            from_above, self.above = await asyncio.open_connection(*self.proxy.target)
            both = [asyncio.ensure_future(task) for task in (self.requests(self.above), self.replies(from_above))]
            _, pending = await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            for task in pending:
                task.cancel()
            await asyncio.gather(*both, return_exceptions=True)
        except OSError:
            self.reset()

    async def requests(self, above: asyncio.StreamWriter) -> None:
        while data := await self.reader.read(CHUNK):
            await self.proxy.passing()
            if self.answered:
                continue
            fault = self.proxy.fault_for(data)
            if fault is not None:
                self.proxy.counts[fault.kind] = self.proxy.counts.get(fault.kind, 0) + 1
                if fault.kind == "request":
                    return self.reset()
                if fault.kind == "answer":
                    # All of the request is read first: a reset would take the answer with it.
                    self.answered = True
                    self.writer.write(fault.answer)
                    self.writer.write_eof()
                    continue
                self.left = fault.after_bytes
            above.write(data)
            await above.drain()

    async def replies(self, from_above: asyncio.StreamReader) -> None:
        while data := await from_above.read(CHUNK):
            await self.proxy.passing()
            if self.left is not None:
                self.writer.write(data[: self.left])
                self.left -= len(data)
                if self.left <= 0:
                    await self.writer.drain()
                    return self.reset()
            else:
                self.writer.write(data)
            await self.writer.drain()

    def reset(self) -> None:
        """Ends both sides at once, and so that the client is told of an error, not of an end."""
        self.proxy.counts["cut"] += 1
        for writer in (self.writer, self.above):
            if writer is not None and not writer.is_closing():
                linger_not = struct.pack("ii", 1, 0)
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger_not)
                writer.transport.abort()

    def close(self) -> None:
        for writer in (self.writer, self.above):
            if writer is not None:
                writer.close()


async def main(what: dict[str, Any]) -> None:
    proxy = Proxy(what["host"], what["port"], (what["target_host"], what["target_port"]))

    async def orders(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        order = json.loads(await reader.readline())
        await proxy.obey(order)
        writer.write(json.dumps({**proxy.counts, "open": len(proxy.connections)}).encode() + b"\n")
        writer.close()

    proxy.open.set()
    await proxy.listen()
    control = await asyncio.start_unix_server(orders, what["control"])
    await control.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
