"""Admission of models: each point is tried, and a fault is found by the point that it concerns."""

from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from tokenizers import normalizers
from transformers import AutoTokenizer

from agentfly_core.config.site import Site
from agentfly_core.models import probe
from agentfly_core.pipeline.admission import Proof, admit
from agentfly_core.pipeline.inputs import base_model
from agentfly_core.training.prefix_tree import PrefixTrees
from tests.support.chat_templates import tokenizer_of
from tests.support.experiments import experiment
from tests.support.model_families import tiny

WITHOUT_VLLM = [
    "files",
    "architecture",
    "tokenizer",
    "template",
    "tool call",
    "learner, rows",
    "learner, shared prefixes",
    "sampler transformers",
]


def proofs(model: str, tmp_path: Path, last: str = WITHOUT_VLLM[-1]) -> dict[str, Proof]:
    """The points up to the last one."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    count = WITHOUT_VLLM.index(last) + 1
    # a point is tried when it is asked for, so none is tried after the last
    return {one.name: one for one in islice(admit(model, "float32", Site(), scratch), count)}


def saved(family: str, nano: Path, folder: Path, **changed: Any) -> str:
    tiny(family, **changed).save_pretrained(folder)
    AutoTokenizer.from_pretrained(nano).save_pretrained(folder)
    return str(folder)


@pytest.mark.parametrize("family", ["qwen3", "gemma3", "qwen3.5"])
def test_a_new_model_of_a_known_family_passes(family: str, nano: Path, tmp_path: Path) -> None:
    tried = proofs(saved(family, nano, tmp_path / "model"), tmp_path)
    assert [*tried] == WITHOUT_VLLM
    assert {name for name, proof in tried.items() if not proof.passed} == set()
    assert ("Not supported" in tried["learner, shared prefixes"].detail) == (family == "qwen3.5")


@pytest.mark.parametrize(
    ("family", "conversations", "call"),
    [
        pytest.param(
            "llama3_1",
            "continues in 7, impossible in 1, opens a context in 2",
            '{"name": "f0", "parameters"',
            marks=pytest.mark.long,
        ),
        pytest.param(
            "llama3_2",
            "continues in 7, impossible in 1, opens a context in 2",
            '"parameters"',
            marks=pytest.mark.long,
        ),
        pytest.param(
            "qwen3",
            "opens a context in 9, continues in 1",
            "<tool_call>",
            marks=pytest.mark.long,
        ),
    ],
)
def test_the_template_of_a_model_and_a_call_are_tried(
    family: str, conversations: str, call: str, nano: Path, tmp_path: Path
) -> None:
    folder = saved("qwen3", nano, tmp_path / "model", vocab_size=152_000)
    tokenizer_of(family).save_pretrained(folder)
    tried = proofs(folder, tmp_path, "tool call")
    assert tried["template"].detail == f"{conversations} conversations"
    assert call in tried["tool call"].detail


def test_nothing_is_tried_without_files(tmp_path: Path) -> None:
    (proof,) = proofs(str(tmp_path), tmp_path).values()
    assert (proof.name, proof.passed) == ("files", False)
    assert "config.json" in proof.detail


def test_a_tokenizer_that_changes_texts_is_refused(nano: Path, tmp_path: Path) -> None:
    folder = Path(saved("qwen3", nano, tmp_path / "model"))
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.backend_tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.save_pretrained(folder)
    tried = proofs(str(folder), tmp_path)
    assert [name for name, proof in tried.items() if not proof.passed] == ["tokenizer"]
    assert "'What is 41 + 58?'" in tried["tokenizer"].detail


def test_a_learner_that_computes_otherwise_is_refused(
    nano: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of_model = probe.of_model
    monkeypatch.setattr(
        probe, "of_model", lambda *given: [value + 0.01 for value in of_model(*given)]
    )
    tried = proofs(saved("qwen3", nano, tmp_path / "model"), tmp_path)
    refused = [name for name, proof in tried.items() if not proof.passed]
    assert refused == ["learner, rows", "learner, shared prefixes", "sampler transformers"]
    assert "by 0.01, expected 0.0001" in tried["learner, rows"].detail


def test_a_run_refuses_a_model_that_its_learner_computes_otherwise(
    nano: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = saved("qwen3", nano, tmp_path / "model")
    monkeypatch.setattr(PrefixTrees, "within", lambda trees, window: trees.attends)
    base_model(experiment(tmp_path / "full", model=model))
    windowed = saved("gemma3", nano, tmp_path / "windowed")
    with pytest.raises(ValueError, match="log-probabilities differ from"):
        base_model(experiment(tmp_path / "other", model=windowed))
