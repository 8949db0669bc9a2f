"""When an idle worker looks at the store again."""

from __future__ import annotations

from procrastinate_py.runtime.looks import Looks

from .workbench import PATIENCE, START, Bench, Running


class Fails:
    def run(self) -> None:
        raise ValueError("no")


def test_a_task_that_failed_is_run_again_when_its_backoff_is_over_not_a_period_later() -> None:
    """E27: its next run_at came about here, so no wake-up tells of it."""
    bench = Bench(update_period=1000, backoff=lambda attempts: 1.0)
    task_id = bench.delay(Fails())
    with Running(bench) as running:
        running.wait_settled(1)
        assert bench.find(task_id).run_at == START + 1
        bench.clock.tick(1)
        running.wait_settled(1)
        running.stop.drain("", PATIENCE)
        running.wait_ended()


def test_a_look_that_is_due_earlier_isnt_put_off() -> None:
    bench = Bench()
    looks = Looks(bench.store, "q", 10.0, bench.clock.now, lambda: 0.0)
    looks.plan(found=False)
    looks.expect(START + 100)
    assert looks.next_at == 10.0
    looks.expect(START - 100)
    assert looks.next_at == 0.0
    assert looks.is_worth_a_claim()
