"""The code on every page runs, and prints what the page says."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.pages import ROOT, blocks, pages

RUNNABLE = [page for page in pages() if blocks(page)]
ON_KAFKA = [page for page in RUNNABLE if any("KAFKA_BOOTSTRAP" in b.code for b in blocks(page))]


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", [p for p in RUNNABLE if p not in ON_KAFKA], ids=name)
def test_the_code_on_the_page_runs(page: Path, tmp_path: Path, postgres_url: str) -> None:
    run(page, tmp_path, DATABASE_URL=postgres_url)


@pytest.mark.parametrize("page", ON_KAFKA, ids=name)
def test_the_code_on_a_page_about_kafka_runs(page: Path, tmp_path: Path, kafka_broker: str) -> None:
    run(page, tmp_path, KAFKA_BOOTSTRAP=kafka_broker)


def run(page: Path, folder: Path, **variables: str) -> None:
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        **variables,
    }
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.pages", str(page)],
        cwd=folder,
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


def test_the_blocks_of_the_tutorial_are_files() -> None:
    """A reader saves each of them, and runs it by itself."""
    tutorial = blocks(ROOT / "docs" / "tutorial" / "first-projection.md")
    code = [block for block in tutorial if block.language == "python"]
    assert len(code) >= 5
    assert all(block.file_name for block in code)


def test_every_page_is_found() -> None:
    assert ROOT / "README.md" in RUNNABLE
    assert len(RUNNABLE) > 5
    assert ROOT / "docs" / "howto" / "project-from-kafka.md" in ON_KAFKA
