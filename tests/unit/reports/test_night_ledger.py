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


def test_an_entry_is_read_as_it_was_written(ledger: NightLedger) -> None:
    said = ledger.append("nightly-1", "promoted", "Better.", champion(1), {"verdict": {}})
    assert ledger.entries() == [said]
    assert (said.number, said.details) == (1, {"verdict": {}})


def test_how_often_a_night_was_begun_is_counted(ledger: NightLedger) -> None:
    for night in ("nightly-1", "nightly-2", "nightly-1"):
        ledger.append(night, "began")
    assert [ledger.sittings(f"nightly-{n}") for n in (1, 2, 3)] == [2, 1, 0]


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
