"""What runs the pages must notice when a page lies."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.pages import ROOT

HONEST = """
```python
# greeting.py
print("hello", "world", 7)
```

    Text that is not run.

```python
from pathlib import Path
names = [p.name for p in Path().iterdir()]
```

<!-- run
assert names == ["greeting.py"]
-->

```console
$ python greeting.py
hello … 7
```

```text
$ false
```
"""

LIES = {
    "python": '```python\nassert 1 == 2, "lie"\n```\n',
    "hidden": '<!-- run\nassert 1 == 2, "lie"\n-->\n',
    "output": "```console\n$ echo lie\ntruth\n```\n",
    "more output": "```console\n$ printf 'one\\nlie\\n'\none\n```\n",
    "exit code": "```console\n$ echo lie; exit 1\n```\n",
    "no error": "```console\n$ echo 'holdfast: lie'\nholdfast: lie\n```\n",
    "background": "```console\n$ sh -c 'echo lie >&2; exit 1' &\n```\n",
}


def run(page: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.support.pages", str(page)],
        cwd=folder,
        env={"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


def test_an_honest_page(tmp_path: Path, folder: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(HONEST, encoding="utf-8")
    done = run(page, folder)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("kind", LIES)
def test_a_page_that_lies(tmp_path: Path, folder: Path, kind: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(LIES[kind], encoding="utf-8")
    done = run(page, folder)
    assert done.returncode != 0
    assert "lie" in done.stderr
