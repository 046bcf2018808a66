"""What the processes have in common that tests start and kill."""

import os


def say(line: str) -> None:
    """One write for a line, so that lines of threads don't mix and a kill loses none."""
    os.write(1, f"{line}\n".encode())


def die_with_parent() -> None:
    """The test holds the other end of our standard input for as long as it lives."""
    while os.read(0, 1024):
        pass
    os._exit(9)
