"""Which cases run, by name and without one."""

import pytest
from click.testing import CliRunner

from bench.case import FULL, QUICK, Scale
from bench.catalogue import BY_NAME, GROUPS, catalogue
from bench.cli import main
from bench.ratios import RATIOS

KNOWN = catalogue(FULL)


def test_a_group_or_a_case_is_selected_by_its_whole_name() -> None:
    assert {case.group for case in KNOWN.select(["append/1"])} == {"append/1"}
    assert [case.name for case in KNOWN.select(["many/postgres/one"])] == ["many/postgres/one"]
    assert not KNOWN.select(["append/1/journ"])


def test_what_takes_long_runs_only_when_it_is_named() -> None:
    default = KNOWN.select([])
    assert not [case.name for case in default if case.name.startswith(BY_NAME)]
    assert {case.group for case in default} == {g for g in GROUPS if not g.startswith(BY_NAME)}
    assert len(KNOWN.select(["growth"])) == 2


def test_every_group_has_a_case() -> None:
    assert {case.group for case in KNOWN.cases} == set(GROUPS)


@pytest.mark.parametrize("scale", [FULL, QUICK])
def test_every_case_has_a_name_of_its_own(scale: Scale) -> None:
    names = [case.name for case in catalogue(scale).cases]
    assert len(set(names)) == len(names)


def test_every_ratio_names_cases_that_there_are() -> None:
    names = {case.name for case in KNOWN.cases}
    # A peer that is not installed has no cases.
    peers = ("eventsource-py", "eventsourcing") if KNOWN.missing else ()
    for ratio in RATIOS:
        for name in (ratio.case, ratio.to):
            if isinstance(name, str) and not name.endswith(peers):
                assert name in names


def test_an_unknown_case_is_refused_with_the_known_ones() -> None:
    done = CliRunner().invoke(main, ["--case", "nonsense"])
    assert done.exit_code == 2
    assert "there is no case nonsense" in done.output
    assert "catch-up/postgres/table" in done.output
