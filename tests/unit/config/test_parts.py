"""Settings of tools, rewards, environments and agents in an experiment file."""

import json
from pathlib import Path
from typing import Any

import pytest

from agentfly_core.config import loading
from agentfly_core.config.experiment import Settings
from agentfly_core.experiment import checks
from agentfly_core.experiment.keys import StageKeys
from agentfly_core.store.artifact import Pointer
from tests.support.experiments import TINY
from tests.support.parts_with_settings import HERE
from tests.support.problems import schedule_of

EXACT = "agentfly_core.rewards.exact:exact"
Read = Any


def read(folder: Path, *overrides: str) -> Settings:
    (folder / "tiny.yaml").write_text(TINY)
    return loading.read(str(folder / "tiny.yaml"), overrides).settings


def dumped(settings: Settings) -> dict[str, Any]:
    return settings.model_dump(mode="json")


def test_parts_without_settings_are_written_as_before(tmp_path: Path) -> None:
    settings = read(
        tmp_path,
        f"tools=[{{use: '{HERE}:count'}}]",
        f"environments={{'{HERE}:Shelf': {{limit: 4, settings: {{}}}}}}",
        f"rewards={{'{EXACT}': {{weight: 2}}}}",
    )
    assert dumped(settings)["tools"] == [f"{HERE}:count"]
    assert dumped(settings)["environments"] == {f"{HERE}:Shelf": 4}
    assert dumped(settings)["rewards"] == {EXACT: 2.0}
    assert (
        settings.digest
        == read(
            tmp_path,
            f"tools=['{HERE}:count']",
            f"environments={{'{HERE}:Shelf': 4}}",
            f"rewards={{'{EXACT}': 2}}",
        ).digest
    )


def test_settings_are_completed_with_the_defaults_of_the_class(tmp_path: Path) -> None:
    settings = read(
        tmp_path,
        f"tools=[{{use: '{HERE}:Search', index: wiki}}]",
        f"rewards={{'{HERE}:Shorter': {{weight: 0.5, than: 4}}}}",
        f"environments={{'{HERE}:Shelf': {{limit: 4, settings: {{books: 7}}}}}}",
        f"agent={{use: '{HERE}:Twice', max_turns: 2, question: Really}}",
    )
    assert dumped(settings)["tools"] == [
        {"use": f"{HERE}:Search", "index": "wiki", "results": 3, "depth": 1}
    ]
    assert dumped(settings)["rewards"] == {
        f"{HERE}:Shorter": {"weight": 0.5, "than": 4, "kind": "turns"}
    }
    assert dumped(settings)["environments"][f"{HERE}:Shelf"] == {
        "limit": 4,
        "settings": {"books": 7},
    }
    assert (settings.agent.max_turns, dumped(settings)["agent"]["question"]) == (2, "Really")
    assert Settings.model_validate(dumped(settings)) == settings
    assert Settings.model_validate(settings.model_dump(mode="json")) == settings


def test_settings_are_part_of_the_keys_of_their_stages(tmp_path: Path) -> None:
    def made(**rewards: Any) -> list[str]:
        settings = read(
            tmp_path, f"rewards={json.dumps(rewards.pop('rewards'))}", *rewards.values()
        )
        policy, data = Pointer("artifacts/p", "p" * 8), Pointer("artifacts/d", "d" * 8)
        drawn = schedule_of(settings).first_round(1, False).drawn(schedule_of(settings))
        return [
            StageKeys(settings).rollout("demo", policy, data, 1, 0, drawn, {}).key,
            StageKeys(settings).evaluation(policy, data, "test", 0, {}).key,
            StageKeys(settings).scored([policy]).key,
        ]

    shorter = {"rewards": {f"{HERE}:Shorter": {"than": 4}}}
    before = made(**shorter)
    assert made(**shorter) == before
    assert all(map(str.__ne__, made(rewards={f"{HERE}:Shorter": {"than": 5}}), before))
    tools = f"tools=[{{use: '{HERE}:Search', index: wiki}}]"
    changed = made(rewards={f"{HERE}:Shorter": {"than": 4}}, tools=tools)
    assert [new != old for new, old in zip(changed, before, strict=True)] == [True, True, False]


def test_an_override_reaches_settings_of_an_import_path(tmp_path: Path) -> None:
    settings = read(tmp_path, f"rewards.{EXACT}.weight=0.5", f"rewards.{EXACT}.timeout=9")
    assert dumped(settings)["rewards"] == {EXACT: {"weight": 0.5, "timeout": 9.0}}


def test_an_override_of_one_key_keeps_a_short_form(tmp_path: Path) -> None:
    settings = read(
        tmp_path,
        f"rewards={{'{EXACT}': 2.5}}",
        f"rewards.{EXACT}.timeout=9",
        f"environments={{'{HERE}:Shelf': 4}}",
        f"environments.{HERE}:Shelf.max_uses=3",
        "algorithm=dapo",
        "algorithm.skip_cut=true",
        "promotion.confirmation=split",
        "promotion.confirmation.share=0.5",
    )
    assert dumped(settings)["rewards"] == {EXACT: {"weight": 2.5, "timeout": 9.0}}
    assert dumped(settings)["environments"] == {f"{HERE}:Shelf": {"limit": 4, "max_uses": 3}}
    assert settings.algorithm.use == "agentfly_core.algorithms.dapo:DAPO"
    assert settings.promotion.confirmation.use == "split"


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            f"tools=[{{use: '{HERE}:Search', indx: wiki}}]",
            r"^tools\.0\.indx: there is no such key\. Did you mean 'index'\?",
        ),
        (
            f"tools=[{{use: '{HERE}:Search', index: wiki, results: many}}]",
            r"^tools\.0: Search: results: Input should be a valid integer.* \(got 'many'\)",
        ),
        (f"tools=[{{use: '{HERE}:Search', results: 2}}]", "Search has no default for index"),
        (
            f"tools=[{{use: '{HERE}:count', books: 2}}]",
            r"^tools\.0\.books: there is no such key\..*Only a class has settings",
        ),
        (
            f"rewards={{'{EXACT}': {{wieght: 2}}}}",
            r"^rewards\.agentfly_core\.rewards\.exact:exact\.wieght: .*Did you mean 'weight'",
        ),
        (
            f"rewards={{'{HERE}:Shorter': {{than: 4, kind: words}}}}",
            r"Shorter: kind: Input should be 'turns' or 'tokens' \(got 'words'\)",
        ),
        (
            f"environments={{'{HERE}:Shelf': {{limit: 4, settings: {{boks: 1}}}}}}",
            rf"^environments\.{HERE}:Shelf\.settings\.boks: .*Did you mean 'books'",
        ),
        (
            "agent={max_turn: 3}",
            r"^agent\.max_turn: there is no such key\. Did you mean 'max_turns",
        ),
        (
            f"agent={{use: '{HERE}:Twice', questoin: '?'}}",
            r"^agent\.questoin: there is no such key\. Did you mean 'question'",
        ),
    ],
)
def test_a_wrong_setting_is_refused_with_its_key(
    tmp_path: Path, override: str, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        read(tmp_path, override)


def test_a_class_with_a_reserved_setting_name_is_refused(tmp_path: Path) -> None:
    settings = read(tmp_path, f"rewards={{'{HERE}:Clashes': 1}}")
    with pytest.raises(ValueError, match=r"has a setting 'timeout', .*Rename the setting"):
        checks.check(settings)


def test_a_missing_class_setting_is_refused_before_any_work(
    tmp_path: Path,
) -> None:
    with pytest.raises(ValueError, match=r"Search .* default for index"):
        checks.check(read(tmp_path, f"tools=['{HERE}:Search']"))
