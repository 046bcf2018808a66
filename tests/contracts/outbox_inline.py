"""Events are applied right after their append, by whoever appended."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import ClassVar

from holdfast.app import App
from holdfast.model.event import Event
from holdfast.model.policy import Park, Policy
from holdfast.model.projection import Projection, Tx, on
from tests.contracts.outbox_samples import ALL, SUMS, Other, OutboxSample, note
from tests.contracts.samples import Counted, eventually


class InlineContract(OutboxSample):
    """Events are applied right after their append, by whoever appended."""

    def test_an_append_that_applies(
        self, app: App, bad: set[int], register: Callable[..., None]
    ) -> None:
        register(inline_seconds=30.0, policy=Policy(on_error=Park()))
        app.catch_up()
        assert app.journal.append("a", [Counted(1), Other(2), Counted(3)]).applied == {"sums"}
        assert self.seen(app) == {"a": [1, 3]}
        self.check_empty(app)
        assert app.journal.append("b", [Other(4)]).applied == frozenset()
        bad.add(5)
        assert app.journal.append("a", [Counted(5)]).applied == frozenset()
        assert self.items(app) == [("a", "dead", 1)]
        # Something waits there: it is not passed.
        assert app.journal.append("a", [Counted(6)]).applied == frozenset()
        assert app.journal.append("c", [Counted(7)]).applied == {"sums"}
        bad.clear()
        app.queue.requeue(ALL, by="me")
        app.catch_up()
        assert self.seen(app) == {"a": [1, 3, 5, 6], "c": [7]}
        self.check_empty(app)

    def test_an_append_waits_no_longer_than_it_may(self, app: App) -> None:
        go_on = threading.Event()
        mark = self.placeholder

        @app.projection(name="sums", delivery="outbox", inline_seconds=0.01)
        class BySql(Projection):
            tables: ClassVar = {"sums": SUMS}

            @on(Counted)
            def counted(self, event: Event[Counted], tx: Tx) -> None:
                assert go_on.wait(30)
                note(tx, event, mark)

        app.catch_up()
        assert app.journal.append("a", [Counted(1)]).applied == frozenset()
        assert self.seen(app) == {}
        go_on.set()
        app.catch_up()  # On a busy machine nobody had begun in time.
        eventually(lambda: self.seen(app) == {"a": [1]})
        eventually(lambda: not app.queue.list())

    def test_many_appends_that_apply(self, app: App, register: Callable[..., None]) -> None:
        """With relays beside them: each event is applied once, in the order of its stream."""
        register(inline_seconds=30.0)
        with app.running():

            def append(number: int) -> None:
                for n in range(number, 80, 8):
                    app.journal.append(str(n % 4), [Counted(n)])

            threads = [threading.Thread(target=append, args=(n,)) for n in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            eventually(lambda: not app.queue.list())
        expected: dict[str, list[int]] = {}
        for event in app.journal.read():
            expected.setdefault(event.stream, []).append(event.data.n)
        assert self.seen(app) == expected
        self.check_empty(app)
