"""Without the client, the package says what to install."""

import subprocess
import sys

CODE = """
import importlib.util, sys
known = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "confluent_kafka" else known(name)
import holdfast.kafka
"""


def test_without_the_client_it_says_what_to_install() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "pip install 'holdfast[kafka]'" in done.stderr
