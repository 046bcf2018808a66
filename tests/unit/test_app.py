"""App's own settings, and what it says about itself."""

import pytest

from holdfast import App, AppendError, ConfigError, EventTypes, NewEvent


@pytest.mark.parametrize("limit", [0, -1])
def test_the_largest_payload_is_at_least_a_byte(limit: int) -> None:
    with pytest.raises(ConfigError, match=f"max_payload_bytes is {limit}"):
        App("sqlite:///:memory:", max_payload_bytes=limit)


def test_the_largest_payload_is_a_setting() -> None:
    def event(size: int) -> NewEvent:
        return NewEvent({"x": "x" * (size - len('{"x":""}') - len("{}"))}, type="X")

    with App("sqlite:///:memory:", max_payload_bytes=100) as app:
        with pytest.raises(AppendError, match=r"101 bytes .* the limit is 100"):
            app.journal.append("a", [event(101)])
        app.journal.append("a", [event(100)])
        with pytest.raises(AppendError, match="the limit is 100"):
            app.journal.append("a", [event(100)], metadata={"a": 1})
        assert app.journal.head() == 1


def test_a_registry_of_events_can_be_shared() -> None:
    types = EventTypes()
    with App("sqlite:///:memory:", events=types) as one, App("sqlite:///:memory:") as other:
        assert one.events is types
        assert other.events is not types


def test_nothing_is_opened_before_it_is_needed() -> None:
    app = App("postgresql://nobody@127.0.0.1:1/nothing")
    assert repr(app) == "App('postgresql://nobody@127.0.0.1:1/nothing', projections=[])"
    app.close()
    app.close()


def test_databases_in_memory_are_apart() -> None:
    with App("sqlite:///:memory:") as one, App("sqlite:///:memory:") as other:
        one.journal.append("a", [NewEvent({}, type="X")])
        assert (one.journal.head(), other.journal.head()) == (1, 0)
