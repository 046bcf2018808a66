"""The code on every page runs, and prints what the page says."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.pages import ROOT, blocks, pages

RUNNABLE = [page for page in pages() if blocks(page)]


@pytest.mark.parametrize("page", RUNNABLE, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_code_on_the_page_runs(page: Path, tmp_path: Path, postgres_url: str) -> None:
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "DATABASE_URL": postgres_url,
    }
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.pages", str(page)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_readme_has_an_example_of_25_lines() -> None:
    first = blocks(ROOT / "README.md")[0]
    assert first.file_name == "bank.py"
    assert len(first.code.splitlines()) <= 25


def test_every_page_is_found() -> None:
    assert ROOT / "README.md" in RUNNABLE
    assert len(RUNNABLE) > 5
