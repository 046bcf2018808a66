"""What the processes have in common that tests start and kill."""

import os

from holdfast.runtime.signals import Signal


def say(line: str) -> None:
    """One write for a line, so that lines of threads don't mix and a kill loses none."""
    os.write(1, f"{line}\n".encode())


def say_signal(signal: Signal) -> None:
    """Its kind and projection, the number of its partition or shard, and its epoch or position."""
    number = signal.feed.rpartition("[")[2].removesuffix("]") if "[" in signal.feed else None
    details = getattr(signal, "epoch", None) or getattr(signal, "position", None)
    words = (type(signal).__name__, signal.projection, number, details)
    say("".join(f"{word} " for word in words if word is not None))


def die_with_parent() -> None:
    """The test holds the other end of our standard input for as long as it lives."""
    while os.read(0, 1024):
        pass
    os._exit(9)
