"""Workers on several hosts, whose clocks are 20 minutes apart, on one server; and a host that is cut off for longer
than its leases last."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests import servers
from tests.hosts.host import environment
from tests.hosts.jobs import Passes, Stays
from tests.hosts.network import network
from tests.processes.support import eventually, lines_of

LEASE = 3.0
FAST, SLOW = 600.0, -600.0
SERVERS: dict[str, tuple[Callable[..., AbstractContextManager[Any]], Callable[[Any], str]]] = {
    "postgres": (servers.own_postgres, lambda server: str(server.new_database())),
    "redis": (servers.own_redis, lambda server: str(server.fresh())),
}


class Told(NamedTuple):
    what: str
    name: str
    host: str
    monotonic: float
    wall: float


def journal(folder: Path, what: str, name: str | None = None, host: str | None = None) -> list[Told]:
    told = [line.split() for line in lines_of(folder / "journal")]
    found = [Told(words[0], words[1], words[2], float(words[3]), float(words[4])) for words in told]
    return [one for one in found if one.what == what and name in (None, one.name) and host in (None, one.host)]


@pytest.mark.parametrize("store", SERVERS)
def test_a_host_that_was_cut_off_loses_its_task_and_cannot_write_what_became_of_it(store: str, tmp_path: Path) -> None:
    """G1, G2, G3, G7"""
    own, url_of = SERVERS[store]
    with network() as hosts, own(host=hosts.address) as server:
        url = url_of(server)
        here = environment(url, folder=str(tmp_path), skew=0.0, lease_for=LEASE)
        settings = {"url": url, "lease_for": LEASE}
        fast = hosts.host(tmp_path, "fast", skew=FAST, **settings)
        long = here.delay("email", task=Stays(str(tmp_path), "long"))
        eventually(lambda: journal(tmp_path, "begun", "long", "fast"))
        slow = hosts.host(tmp_path, "slow", skew=SLOW, **settings)

        fast.cut()
        lost = here.find(long).lease
        assert lost is not None
        soon = int(time.time()) + 4
        many = [(f"task{number}", {"expire_at": timedelta(seconds=300)}) for number in range(40)]
        many += [(f"later{number}", {"run_at": soon}) for number in range(5)]
        here.delay_many([("email", Passes(str(tmp_path), name), options) for name, options in many])
        (begun,) = eventually(lambda: journal(tmp_path, "begun", "long", "slow"))
        lapsed_at = lost.expires_at - time.time() + time.monotonic()
        assert begun.monotonic > lapsed_at - 0.05, "two held it by valid leases"

        # What was done while it was cut off is nobody's business any more.
        (tmp_path / "long-may-end-on-fast").touch()
        eventually(lambda: journal(tmp_path, "ended", "long", "fast"))
        held = here.find(long).lease
        fast.heal()
        eventually(lambda: fast.logged("lease_lost"), "the host that was cut off hears that its lease is gone")
        now = here.find(long)
        assert now.lease is not None
        assert held is not None
        assert now.lease.owner == held.owner != lost.owner
        assert (now.attempts, now.closed_as) == (1, None)

        (tmp_path / "long-may-end-on-slow").touch()
        here.delay("email", task=Stays(str(tmp_path), "last"))
        eventually(lambda: journal(tmp_path, "begun", "last"))
        for name in ("fast", "slow"):
            (tmp_path / f"last-may-end-on-{name}").touch()
        eventually(lambda: not here.tasks(limit=1), "everything completes")
        runs = Counter(one.name for one in journal(tmp_path, "begun"))
        assert runs == Counter({name: 1 for name, _ in many} | {"long": 2, "last": 1})
        for number in range(5):
            (one,) = journal(tmp_path, "begun", f"later{number}")
            assert one.wall >= soon, "a fast clock began it early"
        assert not fast.logged("task_expired")
        assert not slow.logged("lease_lost")
        here.stop(0)
