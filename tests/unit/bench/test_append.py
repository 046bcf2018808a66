"""The turns of a writer: how many events it has appended, and how long each append took."""

from threading import Barrier

from bench.append import Turns, Writing


def test_each_append_of_a_writer_is_timed() -> None:
    turns = Turns(Barrier(1), Writing(writers=1, batch=10, seconds=0.02))
    streams = [stream for stream, _ in turns]
    assert turns.sample().events == 10 * len(streams)
    assert len(turns.append_seconds) == len(streams)
    assert 0.02 <= sum(turns.append_seconds) <= turns.sample().seconds
    assert len(set(streams)) >= len(streams) // 2
