"""Names of policies on the command line."""

from pathlib import Path

import pytest

from agentfly_core.config.reference import (
    EndpointPolicy,
    HubModel,
    LastPolicy,
    LocalModel,
    NanoModel,
    PolicyFile,
    Reference,
    RunPolicy,
    ScriptPolicy,
    WordPolicy,
    reference,
    run_policy,
    speaker,
)

RUNS = ["mine", "rates-1f2e.b"]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("oracle", WordPolicy.ORACLE),
        ("mine", LastPolicy("mine")),
        ("run:mine@7", RunPolicy("mine", 7)),
        ("rates-1f2e.b@0", RunPolicy("rates-1f2e.b", 0)),
        ("run:yours", LastPolicy("yours")),
        ("results/quickstart/policy.json", PolicyFile("results/quickstart/policy.json")),
        ("my_file:policy", ScriptPolicy("my_file:policy")),
        ("nano:calculator", NanoModel("calculator")),
        ("Qwen/Qwen2.5-3B-Instruct@main", HubModel("Qwen/Qwen2.5-3B-Instruct", "main")),
    ],
)
def test_a_policy_is_a_word_a_run_a_file_a_function_or_a_model(text: str, named: Reference) -> None:
    assert reference(text, RUNS) == named


@pytest.mark.parametrize("text", ["says", "gpt2", "yours@3", "shopx.says", "two words", "nano:big"])
def test_a_wrong_policy_is_refused_without_asking_the_hub(text: str) -> None:
    with pytest.raises(ValueError, match=r"run:NAME, run:NAME@STEP|nano model 'big'"):
        reference(text, RUNS)


@pytest.mark.parametrize(("text", "meant"), [("mien@3", "mine"), ("randm", "random")])
def test_a_mistyped_policy_is_refused_with_the_nearest_name(text: str, meant: str) -> None:
    with pytest.raises(ValueError, match=rf"'{text}' is not .*\. Did you mean '{meant}'"):
        reference(text, RUNS)


def test_a_folder_of_that_name_is_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("small").mkdir()
    assert reference("small", RUNS) == LocalModel("small")


def test_policies_of_runs_are_named_with_or_without_a_prefix() -> None:
    assert run_policy("mine") == run_policy("run:mine") == LastPolicy("mine")
    assert run_policy("mine@7") == run_policy("run:mine@7") == RunPolicy("mine", 7)
    with pytest.raises(ValueError, match=r"got 'a/b', expected run:NAME \(its last policy\) or"):
        run_policy("a/b")


def test_a_frozen_speaker_is_a_step_of_a_run_or_a_service() -> None:
    assert speaker("run:mine@7") == RunPolicy("mine", 7)
    assert speaker("endpoint:judge") == EndpointPolicy("judge")
    assert speaker("run:mine") is speaker("mine@7") is speaker("endpoint:") is None
