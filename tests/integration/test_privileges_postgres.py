"""A role without rights: each error has the GRANT that is missing, until everything works."""

import re
from collections.abc import Iterator
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql

from holdfast import App, AppendError, ConfigError, HoldfastError, QueueSelection
from tests.contracts.samples import SUMS, Counted, Sums, fetch

MAX_GRANTS = 30


@pytest.fixture
def role(postgres_url: str) -> Iterator[str]:
    """The name of a role that may do nothing."""
    name = f'app "{uuid4().hex}"'
    with psycopg.connect(postgres_url, autocommit=True) as owner:
        owner.execute(sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(name)))
        owner.execute("REVOKE ALL ON SCHEMA public FROM PUBLIC")
        owner.execute("ALTER DEFAULT PRIVILEGES REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC")
        yield name
        owner.execute(sql.SQL("DROP OWNED BY {}").format(sql.Identifier(name)))
        owner.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(name)))


def url_of(url: str, role: str) -> str:
    return url.replace("postgres@", role.replace(" ", "%20").replace('"', "%22") + "@")


def test_the_grants_in_the_errors_are_all_that_is_missing(postgres_url: str, role: str) -> None:
    with App(postgres_url) as app:
        app.migrate()
    granted: list[str] = []
    with psycopg.connect(postgres_url, autocommit=True) as owner:
        while len(granted) < MAX_GRANTS:
            try:
                use(url_of(postgres_url, role))
                break
            except HoldfastError as error:
                cause = error if isinstance(error, ConfigError) else error.__cause__
                assert isinstance(cause, ConfigError)
                found = re.search("GRANT .*?;", str(cause))
                assert found is not None
                owner.execute(found[0])
                granted.append(found[0])
    assert 3 < len(granted) < MAX_GRANTS
    assert len(set(granted)) == len(granted)


def use(url: str) -> None:
    """Does what an application does."""
    with App(url) as app:
        app.projection(Sums)
        app.journal.append("a", [Counted(1)])
        app.catch_up()
        app.queue.list()
        app.queue.requeue(QueueSelection(status="dead"), by="ann")
        assert app.status()
        app.pause("sums", by="ann")
        app.resume("sums", by="ann")
        assert fetch(app, SUMS)


def test_a_joined_transaction_of_a_role_without_rights(postgres_url: str, role: str) -> None:
    with (
        App(postgres_url) as app,
        psycopg.connect(url_of(postgres_url, role)) as other,
        psycopg.connect(postgres_url, autocommit=True) as owner,
    ):
        app.migrate()
        owner.execute(sql.SQL("GRANT USAGE ON SCHEMA public TO {}").format(sql.Identifier(role)))
        with pytest.raises(AppendError, match=r"permission denied for .*holdfast_"):
            app.journal.append("a", [Counted(1)], connection=other)
