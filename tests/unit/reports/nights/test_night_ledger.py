"""The history of nights, in order, with several writers."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from agentfly_core.config.reference import RunPolicy
from agentfly_core.reports.nights.night_ledger import Champion, NightLedger, ScoredProblems
from agentfly_core.store.artifact import Pointer
from agentfly_core.store.store import Store
from agentfly_core.system.formats.checksummed_json import Damaged


@pytest.fixture
def ledger(tmp_path: Path) -> NightLedger:
    return NightLedger(Store.at(str(tmp_path / "store"), tmp_path / "cache"), "shop")


def champion(night: int) -> Champion:
    return Champion(RunPolicy(f"nightly-{night}", 15), Pointer(f"runs/nightly-{night}", "9f2c"))


def test_the_last_promoted_policy_is_champion_until_demoted(ledger: NightLedger) -> None:
    assert ledger.read().champion is None
    ledger.append("nightly-1", "promoted", "", champion(1))
    ledger.append("nightly-2", "kept")
    ledger.append("nightly-3", "promoted", "", champion(3))
    assert ledger.read().champion == champion(3)
    ledger.append("nightly-3", "demoted")
    assert ledger.read().champion == champion(1)
    ledger.append("nightly-1", "demoted")
    assert ledger.read().champion is None


def test_two_equal_demotions_remove_one_champion(
    ledger: NightLedger,
) -> None:
    ledger.append("nightly-1", "promoted", "", champion(1))
    ledger.append("nightly-2", "promoted", "", champion(2))
    for _ in range(2):
        ledger.append("nightly-2", "demoted")
    assert ledger.read().champion == champion(1)


FOLDER = "nights/shop"


def three_nights(ledger: NightLedger) -> None:
    for n in (1, 2, 3):
        ledger.append(f"nightly-{n}", "promoted", "", champion(n))


def test_a_file_that_is_not_an_entry_is_ignored(ledger: NightLedger) -> None:
    ledger.append("nightly-1", "began")
    (ledger.store.root / FOLDER / "000001.json.bak").write_text("?")
    assert ledger.append("nightly-2", "began").number == 2
    assert [entry.number for entry in ledger.read().entries] == [1, 2]


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_missing_entry_is_named(ledger: NightLedger, number: int) -> None:
    three_nights(ledger)
    ledger.store.remove(f"{FOLDER}/{number:06d}.json")
    name = rf"lacks 1 of its 3 entries: .*/nights/shop/00000{number}\.json.*another name"
    with pytest.raises(Damaged, match=name):
        ledger.read()
    with pytest.raises(Damaged, match=name):
        ledger.append("nightly-4", "began")


def test_a_damaged_head_is_named(ledger: NightLedger) -> None:
    three_nights(ledger)
    (ledger.store.root / FOLDER / "head.json").write_text("{")
    with pytest.raises(Damaged, match=r"nights/shop/head\.json"):
        ledger.read()


def test_a_replaced_entry_breaks_the_chain(ledger: NightLedger) -> None:
    three_nights(ledger)
    file = f"{FOLDER}/000002.json"
    other = {**ledger.store.read_json(file), "night": "nightly-9"}
    ledger.store.write_json(file, other)
    with pytest.raises(Damaged, match=r"000003\.json does not match"):
        ledger.read()


def test_an_entry_is_read_as_it_was_written(ledger: NightLedger) -> None:
    promoted = ledger.append("nightly-1", "promoted", "Better.", champion(1))
    ended = ledger.append("nightly-1", "finished", "", ScoredProblems({"": 4}))
    assert ledger.read().entries == [promoted, ended]
    assert (promoted.number, promoted.champion, ended.champion) == (1, champion(1), None)


def test_the_starts_of_a_night_are_counted(ledger: NightLedger) -> None:
    for night in ("nightly-1", "nightly-2", "nightly-1"):
        ledger.append(night, "began")
    assert [ledger.read().attempts(f"nightly-{n}") for n in (1, 2, 3)] == [2, 1, 0]


def test_simultaneous_entries_are_all_kept(ledger: NightLedger) -> None:
    with ThreadPoolExecutor(8) as threads:
        entries = [*threads.map(lambda n: ledger.append(f"nightly-{n}", "began"), range(40))]
    assert sorted(entry.number for entry in entries) == [*range(1, 41)]
    assert {entry.night for entry in ledger.read().entries} == {f"nightly-{n}" for n in range(40)}


def test_a_damaged_entry_is_named(ledger: NightLedger) -> None:
    ledger.append("nightly-1", "began")
    file = ledger.store.root / "nights/shop/000001.json"
    file.write_text(file.read_text().replace("began", "promo"))
    with pytest.raises(Damaged, match=r"nights/shop/000001\.json"):
        ledger.read()


@pytest.mark.parametrize("uri", ["../precious", "/etc", "runs/../../x"])
def test_a_champion_outside_the_store_is_refused(ledger: NightLedger, uri: str) -> None:
    ledger.append("nightly-1", "promoted", "", champion(1))
    value = ledger.store.read_json(f"{FOLDER}/000001.json")
    value["details"]["policy"]["uri"] = uri
    ledger.store.write_json(f"{FOLDER}/000001.json", value)
    with pytest.raises(ValueError, match=r"got the (name|uri)"):
        ledger.read()
