"""Every library that holds a transaction open: the events are in if and only if it commits."""

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from holdfast import (
    App,
    AppendError,
    ConcurrencyError,
    Event,
    NewEvent,
    Projection,
    SchemaError,
    Tx,
    on,
)
from tests.support.joining import WAYS, Way, opened, undone

ALL = [(kind, name) for kind, ways in WAYS.items() for name in ways]
OTHER = {"sqlite": "postgres", "postgres": "sqlite"}

NASTY = {
    "percent": "100 % %s %(stream)s %%",
    "colon": ":stream ::text :'x' \\:y",
    "quotes": 'it\'s "so" `so` $$ $1 ? ?1',
    "unicode": "naïve 漢字 👩‍🚀 \u2028",
    "control": "\x01\t\n\r\x7f",
    "backslash": "C:\\temp\\n \\u0041",
    "empty": "",
    "text": "% :key ? $1 '",
}


@pytest.fixture
def postgres_url(emptied_postgres_url: str) -> str:
    return emptied_postgres_url


@pytest.fixture(params=ALL, ids=lambda param: " ".join(param))
def kind_and_name(request: pytest.FixtureRequest) -> tuple[str, str]:
    kind, name = request.param
    return kind, name


@pytest.fixture
def url(request: pytest.FixtureRequest, kind_and_name: tuple[str, str]) -> str:
    url: str = request.getfixturevalue(f"{kind_and_name[0]}_url")
    return url


@pytest.fixture
def app(url: str) -> Iterator[App]:
    with App(url) as app:
        app.migrate()
        yield app


@pytest.fixture
def way(app: App, url: str, kind_and_name: tuple[str, str]) -> Iterator[Way]:
    kind, name = kind_and_name
    with opened(WAYS[kind][name](url)) as way:
        with way.transaction():
            way.execute("CREATE TABLE business (name VARCHAR(50) NOT NULL)")
        yield way


@pytest.fixture
def witness(url: str, kind_and_name: tuple[str, str]) -> Iterator["Witness"]:
    kind, _ = kind_and_name
    library = {"sqlite": "sqlite3", "postgres": "psycopg"}[kind]
    with opened(WAYS[kind][library](url)) as own:
        yield Witness(own)


class Witness:
    """Looks at the database from outside the transaction."""

    def __init__(self, way: Way) -> None:
        self._way = way

    def sees(self) -> tuple[list[str], list[tuple[str, int, str]]]:
        """The business rows, and the events as (stream, version, type)."""
        with self._way.transaction():
            run = self._way.connection.execute
            rows = run("SELECT name FROM business ORDER BY name").fetchall()
            sql = "SELECT stream, version, type FROM holdfast_event ORDER BY position"
            events = run(sql).fetchall()
        return [row[0] for row in rows], events


def event(type_: str) -> NewEvent:
    return NewEvent({}, type=type_)


def test_a_commit_makes_rows_and_events_visible_together(
    app: App, way: Way, witness: Witness
) -> None:
    with way.transaction():
        way.execute("INSERT INTO business VALUES ('order 1')")
        appended = way.append(
            app.journal, "order-1", [event("Placed"), event("Paid")], expected_version=0
        )
        way.execute("INSERT INTO business VALUES ('order 2')")
        assert witness.sees() == ([], [])

    assert witness.sees() == (
        ["order 1", "order 2"],
        [("order-1", 1, "Placed"), ("order-1", 2, "Paid")],
    )
    assert appended.version == 2
    assert [e.position for e in app.journal.read()] == list(appended.positions)


def test_a_message_is_sent_if_its_transaction_commits(app: App, way: Way) -> None:
    got: list[str] = []

    @app.sink()
    class Mails(Projection):
        @on("mail")
        def mail(self, event: Event[Any], tx: Tx) -> None:
            got.append(f"{event.stream}: {event.data['text']}")

    app.migrate()
    with undone(way.transaction()):
        way.execute("INSERT INTO business VALUES ('order 1')")
        way.send(app.outbox, "mail", {"text": "never"}, key="anna")
    with way.transaction():
        way.send(app.outbox, "mail", {"text": "first"}, key="anna")
        with pytest.raises(AppendError, match="no sink takes topic 'letter'"):
            way.send(app.outbox, "letter", {}, key="anna")
        way.execute("INSERT INTO business VALUES ('order 2')")
        way.send(app.outbox, "mail", NASTY, key="anna")
    app.catch_up()
    assert got == ["anna: first", f"anna: {NASTY['text']}"]


def test_a_rollback_leaves_neither(app: App, way: Way, witness: Witness) -> None:
    with undone(way.transaction()):
        way.execute("INSERT INTO business VALUES ('order 1')")
        way.append(app.journal, "order-1", [event("Placed")])

    assert witness.sees() == ([], [])
    with way.transaction():
        assert way.append(app.journal, "order-1", [event("Placed")]).version == 1


def test_a_savepoint_takes_its_events_with_it(app: App, way: Way, witness: Witness) -> None:
    with way.transaction():
        way.execute("INSERT INTO business VALUES ('outer')")
        with undone(way.savepoint()):
            way.execute("INSERT INTO business VALUES ('inner')")
            way.append(app.journal, "order-1", [event("Undone")], expected_version=0)
        way.append(app.journal, "order-1", [event("Placed")], expected_version=0)
        with way.savepoint():
            way.append(app.journal, "order-1", [event("Kept")], expected_version=1)

    assert witness.sees() == (["outer"], [("order-1", 1, "Placed"), ("order-1", 2, "Kept")])


def test_a_conflict_leaves_the_transaction_usable(app: App, way: Way, witness: Witness) -> None:
    app.journal.append("order-1", [event("Placed")])
    with way.transaction():
        way.execute("INSERT INTO business VALUES ('before')")
        with pytest.raises(ConcurrencyError) as caught:
            way.append(app.journal, "order-1", [event("Placed")], expected_version=0)
        assert (caught.value.expected, caught.value.actual) == (0, 1)
        way.execute("INSERT INTO business VALUES ('after')")
        way.append(app.journal, "order-1", [event("Paid")], expected_version=1)

    assert witness.sees() == (
        ["after", "before"],
        [("order-1", 1, "Placed"), ("order-1", 2, "Paid")],
    )


def test_the_same_ids_again_change_nothing(app: App, way: Way, witness: Witness) -> None:
    events = [NewEvent({}, type="Placed", id=uuid4()), NewEvent({}, type="Paid", id=uuid4())]
    with way.transaction():
        first = way.append(app.journal, "order-1", events, expected_version=0)
        assert way.append(app.journal, "order-1", events, expected_version=0) == first
    with way.transaction():
        assert way.append(app.journal, "order-1", events, expected_version=0) == first
        with pytest.raises(AppendError, match="use new ids"):
            way.append(app.journal, "order-2", events)
        way.execute("INSERT INTO business VALUES ('after')")

    assert witness.sees() == (["after"], [("order-1", 1, "Placed"), ("order-1", 2, "Paid")])


def test_text_of_every_kind_survives(app: App, way: Way) -> None:
    stream = "s-%s :stream ::text 'x' \"y\" 👩‍🚀"
    metadata = {"note": NASTY}
    with way.transaction():
        way.append(
            app.journal,
            stream,
            [NewEvent(NASTY, type="Nasty % :type ::x '\"")],
            expected_version=0,
            metadata=metadata,
        )

    (stored,) = app.journal.read_stream(stream)
    assert stored.data == NASTY
    assert stored.metadata == metadata
    assert stored.type == "Nasty % :type ::x '\""


def test_a_connection_of_the_other_kind_is_refused(
    app: App, way: Way, request: pytest.FixtureRequest, kind_and_name: tuple[str, str]
) -> None:
    other = OTHER[kind_and_name[0]]
    with App(request.getfixturevalue(f"{other}_url")) as elsewhere:
        elsewhere.migrate()
        with way.transaction():
            way.execute("INSERT INTO business VALUES ('kept')")
            with pytest.raises(AppendError, match=f"the journal on {other}"):
                way.append(elsewhere.journal, "order-1", [event("Placed")])
            way.append(app.journal, "order-1", [event("Placed")])
        assert list(elsewhere.journal.read()) == []
    assert len(list(app.journal.read())) == 1


def test_a_joined_append_never_migrates(url: str, kind_and_name: tuple[str, str]) -> None:
    kind, name = kind_and_name
    with App(url) as fresh, opened(WAYS[kind][name](url)) as way:
        with undone(way.transaction()):
            way.execute("CREATE TABLE business (name VARCHAR(50) NOT NULL)")
            with pytest.raises(SchemaError, match=r"app\.migrate\(\)"):
                way.append(fresh.journal, "order-1", [event("Placed")])
        fresh.migrate()
        with way.transaction():
            way.append(fresh.journal, "order-1", [event("Placed")])
        assert fresh.journal.head() == 1
