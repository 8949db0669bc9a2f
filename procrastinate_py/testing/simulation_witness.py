"""Sees what a store truly did, below all trouble, and tells the ledger."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ..core.lease import LeaseToken, TaskId
from ..core.lifecycle import Transition
from ..core.row import record_from_row
from ..core.task import Claim
from ..ports.persister import IncompleteSettle, Leasing, Persister
from .simulation_judge import How
from .simulation_ledger import Ledger, Now


class Witness:
    """For one worker. ``look`` holds the whole store against the ledger."""

    def __init__(self, ledger: Ledger, owner: str, now: Callable[[], Now], look: Callable[[], None]) -> None:
        self.ledger = ledger
        self.owner = owner
        self.now = now
        self.look = look


class LeasingWitness:
    """Over a store with leases."""

    def __init__(self, store: Leasing, witness: Witness) -> None:
        self._store = store
        self._witness = witness

    def claim(self, queue: str, owner: str, limit: int, lease_for: float) -> Sequence[Claim]:
        claims = self._store.claim(queue, owner, limit, lease_for)
        self._handed_out(claims, How.CLAIMED, lease_for, limit)
        return claims

    def lapsed(
        self, queue: str, owner: str, limit: int, lease_for: float, dead_owner: str | None = None
    ) -> Sequence[Claim]:
        claims = self._store.lapsed(queue, owner, limit, lease_for, dead_owner)
        self._handed_out(claims, How.LAPSED if dead_owner is None else How.LEFT, lease_for, limit)
        return claims

    def extend(self, tokens: Sequence[LeaseToken], lease_for: float) -> Sequence[LeaseToken]:
        lost = self._store.extend(tokens, lease_for)
        witness = self._witness
        witness.ledger.extended(witness.owner, tokens, lost, lease_for, witness.now())
        witness.look()
        return lost

    def settle(self, settlements: Sequence[tuple[LeaseToken, Transition]]) -> Sequence[LeaseToken]:
        try:
            lost = self._store.settle(settlements)
        except IncompleteSettle as error:
            self._settled([item for item in settlements if item[0] not in error.failures], ())
            raise
        self._settled(settlements, lost)
        return lost

    def next_look_at(self, queue: str) -> float | None:
        return self._store.next_look_at(queue)

    def _handed_out(self, claims: Sequence[Claim], how: How, lease_for: float, limit: int) -> None:
        witness = self._witness
        witness.ledger.handed_out(witness.owner, claims, how, lease_for, limit, witness.now())
        witness.look()

    def _settled(self, done: Sequence[tuple[LeaseToken, Transition]], lost: Iterable[LeaseToken]) -> None:
        witness = self._witness
        witness.ledger.settled(witness.owner, done, lost, witness.now())
        witness.look()


class ConsumerWitness(LeasingWitness):
    """Over the sole consumer of a floor persister."""

    def extend(self, tokens: Sequence[LeaseToken], lease_for: float) -> Sequence[LeaseToken]:
        return self._store.extend(tokens, lease_for)

    def _handed_out(self, claims: Sequence[Claim], how: How, lease_for: float, limit: int) -> None:
        super()._handed_out(claims, how, lease_for, limit)
        self._witness.ledger.heard(self._witness.owner)  # between the two there's nothing that could fail

    def _settled(self, done: Sequence[tuple[LeaseToken, Transition]], lost: Iterable[LeaseToken]) -> None:
        lost = set(lost)
        for token, transition in done:
            self._witness.ledger.let_go(
                self._witness.owner, token, transition, self._witness.now(), was_lost=token in lost
            )


class FloorWitness:
    """Over a persister of four methods."""

    def __init__(self, persister: Persister, witness: Witness, queue: str) -> None:
        self._persister = persister
        self._witness = witness
        self._queue = queue

    def read_tasks(self, queue: str) -> Iterable[Mapping[str, Any]]:
        return self._persister.read_tasks(queue)

    def create_task(self, data: dict[str, Any]) -> TaskId:
        return self._persister.create_task(data)

    def update_task(self, attributes: dict[str, Any]) -> Any:
        reply = self._persister.update_task(attributes)
        witness = self._witness
        after = record_from_row(self._queue, attributes, 0.0)
        witness.ledger.wrote(witness.owner, after.id, after, witness.now())
        witness.look()
        return reply

    def delete_task(self, task_id: TaskId) -> Any:
        reply = self._persister.delete_task(task_id)
        witness = self._witness
        witness.ledger.wrote(witness.owner, task_id, None, witness.now())
        witness.look()
        return reply
