"""What became of each night, in the order in which it happened, whoever wrote it down."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from agentfly_core.artifacts.store import Artifact, Store
from agentfly_core.formats.checksummed_json import Damaged
from agentfly_core.reports.night_ledger import Champion, NightLedger


@pytest.fixture
def ledger(tmp_path: Path) -> NightLedger:
    return NightLedger(Store.at(str(tmp_path / "store"), tmp_path / "cache"), "shop")


def champion(night: int) -> Champion:
    return Champion(f"run:nightly-{night}@15", Artifact(f"runs/nightly-{night}", "9f2c"))


def test_the_one_who_was_promoted_last_reigns_until_demoted(ledger: NightLedger) -> None:
    assert ledger.champion() is None
    ledger.append("nightly-1", "promoted", "", champion(1))
    ledger.append("nightly-2", "kept")
    ledger.append("nightly-3", "promoted", "", champion(3))
    assert ledger.champion() == champion(3)
    ledger.append("nightly-3", "demoted")
    assert ledger.champion() == champion(1)
    ledger.append("nightly-1", "demoted")
    assert ledger.champion() is None


def test_who_is_demoted_twice_at_a_time_takes_no_other_with_them(
    ledger: NightLedger,
) -> None:
    ledger.append("nightly-1", "promoted", "", champion(1))
    ledger.append("nightly-2", "promoted", "", champion(2))
    for _ in range(2):
        ledger.append("nightly-2", "demoted")
    assert ledger.champion() == champion(1)


def test_an_entry_that_is_gone_and_a_file_that_is_none_stop_nothing(ledger: NightLedger) -> None:
    for night in (1, 2, 3):
        ledger.append(f"nightly-{night}", "began")
    ledger.store.remove(f"{ledger.uri}/000002.json")
    (ledger.store.root / ledger.uri / "000001.json.bak").write_text("?")
    assert ledger.append("nightly-4", "began").number == 4
    assert [entry.number for entry in ledger.entries()] == [1, 3, 4]


def test_an_entry_is_read_as_it_was_written(ledger: NightLedger) -> None:
    said = ledger.append("nightly-1", "promoted", "Better.", champion(1), {"verdict": {}})
    assert ledger.entries() == [said]
    assert (said.number, said.details) == (1, {"verdict": {}})


def test_how_often_a_night_was_begun_is_counted(ledger: NightLedger) -> None:
    for night in ("nightly-1", "nightly-2", "nightly-1"):
        ledger.append(night, "began")
    assert [ledger.read().attempts(f"nightly-{n}") for n in (1, 2, 3)] == [2, 1, 0]


def test_nothing_that_is_written_down_at_the_same_time_is_lost(ledger: NightLedger) -> None:
    with ThreadPoolExecutor(8) as threads:
        told = [*threads.map(lambda n: ledger.append(f"nightly-{n}", "began"), range(40))]
    assert sorted(entry.number for entry in told) == [*range(1, 41)]
    assert {entry.night for entry in ledger.entries()} == {f"nightly-{n}" for n in range(40)}


def test_a_damaged_entry_is_named(ledger: NightLedger) -> None:
    ledger.append("nightly-1", "began")
    file = ledger.store.root / "nights/shop/000001.json"
    file.write_text(file.read_text().replace("began", "promo"))
    with pytest.raises(Damaged, match=r"nights/shop/000001\.json"):
        ledger.champion()
