"""What a person's word for a policy names."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentfly_core.experiment.policy_reference import (
    ModelPolicy,
    NamedPolicy,
    PolicyFile,
    PolicyReference,
    RunPolicy,
    ScriptPolicy,
    policy_reference,
    run_policy,
)

RUNS = ["mine", "rates-1f2e.b"]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("oracle", NamedPolicy("oracle")),
        ("mine", RunPolicy("run:mine")),
        ("run:mine@7", RunPolicy("run:mine@7")),
        ("rates-1f2e.b@0", RunPolicy("run:rates-1f2e.b@0")),
        ("run:yours", RunPolicy("run:yours")),
        ("results/quickstart/policy.json", PolicyFile("results/quickstart/policy.json")),
        ("my_file:policy", ScriptPolicy("my_file:policy")),
        ("nano:calculator", ModelPolicy("nano:calculator")),
        ("Qwen/Qwen2.5-3B-Instruct@main", ModelPolicy("Qwen/Qwen2.5-3B-Instruct@main")),
    ],
)
def test_a_policy_is_named_by_a_word_a_run_a_file_a_function_or_a_model(
    text: str, named: PolicyReference
) -> None:
    assert policy_reference(text, RUNS) == named


@pytest.mark.parametrize("text", ["says", "gpt2", "yours@3", "shopx.says", "two words", "nano:big"])
def test_what_names_none_is_refused_before_the_hub_is_asked(text: str) -> None:
    with pytest.raises(ValueError, match=r"run:NAME, run:NAME@STEP|There is no nano model 'big'"):
        policy_reference(text, RUNS)


@pytest.mark.parametrize(("text", "meant"), [("mien@3", "mine"), ("randm", "random")])
def test_a_mistyped_policy_is_told_the_nearest_run_or_word(text: str, meant: str) -> None:
    with pytest.raises(ValueError, match=rf"There is no policy '{text}'\. Did you mean '{meant}'"):
        policy_reference(text, RUNS)


def test_a_folder_of_that_name_is_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("small").mkdir()
    for file in ("config.json", "model.safetensors", "tokenizer.json"):
        Path("small", file).touch()
    assert policy_reference("small", RUNS) == ModelPolicy("small")


def test_the_policies_of_runs_are_named_with_or_without_run() -> None:
    assert [run_policy(text) for text in ("mine", "run:mine@7")] == ["run:mine", "run:mine@7"]
    with pytest.raises(ValueError, match=r"got 'a/b', expected run:NAME \(its last\) or run:NAME@"):
        run_policy("a/b")
