"""`agentfly play` with an own experiment and own policies."""

import io
import json
import sys
from pathlib import Path

import pytest

from agentfly_core.experiment.run_layout import PLAYS, PlayLayout, RunLayout, rollouts
from agentfly_core.records.parquet import EPISODES, SCORES, read_scores, read_trajectories
from agentfly_core.records.trajectory import Ending, Message, Trajectory
from agentfly_core.store.store import Store
from flows.__main__ import main
from flows.experiments import load_experiment
from tests.support.capitals import EXPERIMENT
from tests.support.imported_packages import loaded
from tests.support.project import ROOT

pytestmark = pytest.mark.slow

PATH = "tests.support.capitals"


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """The store of a project folder, the working directory, with one experiment."""
    (tmp_path / "atlas.yaml").write_text(EXPERIMENT)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AGENTFLY_SAMPLER", "transformers")
    return Store.at(".", tmp_path / "cache")


def played(*words: str) -> int:
    return main(["play", "atlas.yaml", *words])


def episodes(store: Store, name: str) -> list[Trajectory]:
    """Read the played episodes from their artifacts."""
    scored = store.artifact(PlayLayout(name).scored)
    folders = [store.open(rollout) for rollout in rollouts(scored)]
    return [t for folder in folders for t in read_trajectories(folder / EPISODES)]


def rewards(store: Store, name: str) -> list[object]:
    scored = store.open(store.artifact(PlayLayout(name).scored))
    return [one.reward for one in read_scores(scored / SCORES)]


def test_the_base_model_does_not_replace_a_damaged_policy(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    run = load_experiment("atlas.yaml", [], "local", "").run_name(
        "",
        False,
    )
    damaged = store.root / RunLayout(run).step(1).policy / "MANIFEST.json"
    damaged.parent.mkdir(parents=True)
    damaged.write_bytes(bytes(300))
    assert played() == 2
    assert f"agentfly: {damaged.resolve()} is damaged" in capsys.readouterr().err
    assert store.names(PLAYS) == []


def test_an_own_policy_plays_and_its_episodes_are_stored(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    assert played("--policy", f"{PATH}:knows", "-n", "7") == 0
    out = capsys.readouterr().out.splitlines()
    assert out[:4] == [
        f"{PATH}:knows plays.",
        "7 episodes of 3 problems: 7 terminal",
        "mean reward 1.000 (no interval: few or equal rewards)",
        "solved 100.0%, 95 % interval 43.9% to 100.0% by problem",
    ]
    assert out[4] == "14 tool calls, 0 answered with an error"
    assert out[-1] == "Read them: agentfly show play:atlas-1"

    trajectories = episodes(store, "atlas-1")
    assert [(t.problem.id, t.chain) for t in trajectories[:4]] == [
        ("Chile", 0),
        ("Chile", 1),
        ("Japan", 0),
        ("Kenya", 0),
    ]
    assert {t.role for t in trajectories} == {"evaluation"}
    assert trajectories[0].answer == "Santiago"
    assert rewards(store, "atlas-1") == [1.0] * 7
    assert store.names("plays/atlas-1") == [
        "play.json",
        "rollout-000",
        "rollout-001",
        "scored",
        "tokenizer",
    ]


def test_play_json_has_policy_problems_and_command(store: Store) -> None:
    assert played("seed=3", "--policy", f"{PATH}:knows", "-n", "1", "--split", "test") == 0
    record = store.read_json(PlayLayout("atlas-1").record)
    assert record["command"] == (
        f"agentfly play atlas.yaml seed=3 --policy {PATH}:knows -n 1 --split test"
    )
    chosen = {
        key: record[key] for key in ("experiment", "policy", "script", "way", "split", "seed")
    }
    assert chosen == {
        "experiment": "atlas",
        "policy": f"{PATH}:knows",
        "script": f"{PATH}:knows",
        "way": "experiment",
        "split": "test",
        "seed": 3,
    }
    assert record["sampled_from"] is None
    assert [t.problem.id for t in episodes(store, "atlas-1")] == ["Norway"]


def test_the_oracle_is_the_warm_start_policy_without_mistakes(store: Store) -> None:
    assert played("--policy", "oracle", "-n", "3") == 0
    assert played("--policy", f"{PATH}:shown", "-n", "3") == 0
    assert [rewards(store, name) for name in store.names(PLAYS)] == [[1.0] * 3, [0.0] * 3]


def test_playing_an_oracle_loads_no_package_for_weights(tmp_path: Path) -> None:
    words = ("play", str(ROOT / "conf/quickstart.yaml"), "--policy", "oracle", "-n", "1")
    unused = {"torch", "deepspeed", "vllm", "prefect", "mlflow", "httpx", "fsspec"}
    assert loaded(tmp_path, *words) & unused == set()


def test_the_help_explains_when_an_oracle_makes_no_mistakes(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["play", "--help"]) == 0
    shown = " ".join(capsys.readouterr().out.replace("│", "").split())
    assert "without deliberate mistakes" in shown


def test_one_problem_is_played_several_times_in_each_play(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        assert played("--policy", "random", "--problem", "Japan", "-n", "2", "--json") == 0
    printed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["play"] for one in printed] == store.names(PLAYS) == ["atlas-1", "atlas-2"]
    assert (printed[0]["episodes"], printed[0]["problems"]) == (2, 1)
    assert episodes(store, "atlas-1") == episodes(store, "atlas-2")
    assert {t.problem.id for t in episodes(store, "atlas-1")} == {"Japan"}


def test_the_base_model_plays_if_no_run_has_a_policy(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    assert played("agent.max_tokens=5", "agent.max_turns=1", "-n", "2") == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "base (nano:calculator) plays."
    assert out[-3].startswith("2 of 2 replies cut at a token limit (see agent.max_tokens, ")
    record = store.read_json(PlayLayout("atlas-1").record)
    assert record["sampled_from"]["uri"].startswith("artifacts/model/")
    (first, second) = episodes(store, "atlas-1")
    assert {span.policy_version for turn in first.turns for span in turn.sampled} == {0}
    assert {first.ending, second.ending} <= {Ending.MAX_TURNS, Ending.NO_TOOL_CALLS}


def test_an_own_nano_model_and_a_script_in_its_tokens_play(store: Store) -> None:
    words = ("model=nano", "warm_start.episodes=8", "agent.max_turns=2", "-n", "3")
    assert played(*words, "--policy", f"{PATH}:knows") == 0
    assert played(*words, "--policy", "base") == 0
    (model,) = store.names("artifacts/model")
    assert store.read_json(PlayLayout("atlas-2").record)["sampled_from"]["uri"].endswith(model)


def test_failed_episodes_are_stored(store: Store) -> None:
    assert played("agent.deadline=0.000001", "--policy", f"{PATH}:knows", "-n", "3") == 0
    assert {t.ending for t in episodes(store, "atlas-1")} == {Ending.FAILED}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--policy", f"{PATH}:breaks"], "KeyError: 'river'"),
        (["--policy", f"{PATH}:loses"], "agentfly: the server died"),
        (["--policy", f"{PATH}:know"], "has no 'know'. Did you mean 'knows'?"),
        (["--policy", f"{PATH}:CAPITALS"], "is a dict, expected a function or a class"),
        (["--policy", "run:demo"], "The run 'demo' has published no policy"),
        (["--policy", "says"], "'says' is not a policy. A policy is base"),
        (["--policy", "oracl"], "'oracl' is not a policy. Did you mean 'oracle'? A policy"),
        (["--policy", "shopx.says"], "the import path of your async function, my_file:policy"),
        (["--policy", "oracle", "warm_start=null"], "atlas has no oracle"),
        (["--policy", "random", "--problem", "Jpan"], "The train split has no problem 'Jpan'. Did"),
        (["--policy", "random", "--split", "validation"], "The validation split is empty"),
    ],
)
def test_an_impossible_play_is_refused_with_one_message(
    store: Store, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert played(*words) == 2
    assert message in capsys.readouterr().err
    assert store.names(PLAYS) == []


def test_in_another_folder_the_project_folder_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (tmp_path / "mine.yaml").write_text(EXPERIMENT.replace(PATH, "my_unknown_atlas"))
    monkeypatch.chdir(other)
    assert main(["play", "../mine.yaml", "--policy", "oracle"]) == 2
    assert f"folder of your project; the current folder is {other}" in capsys.readouterr().err
    assert main(["play", "mine"]) == 2
    assert (
        f"The experiment 'mine' does not exist ({other}/conf/mine.yaml)" in capsys.readouterr().err
    )


def test_episodes_stored_before_an_error_can_be_read(store: Store) -> None:
    words = ["--policy", f"{PATH}:breaks_at_kenya", "-n", "3", "--live"]
    assert played(*words) == 2
    assert store.names("plays/atlas-1") == ["play.json", "rollout-000", "rollout-001", "tokenizer"]


def test_a_scripted_policy_needs_no_prefect_mlflow_or_weights(store: Store) -> None:
    before = {"prefect", "mlflow", "vllm"} & {*sys.modules}
    assert played("--policy", "oracle") == 0
    assert {"prefect", "mlflow", "vllm"} & {*sys.modules} == before
    assert store.names("artifacts") == ["prepare"]


def test_live_shows_each_turn_with_the_marks_of_show(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    assert played("--policy", f"{PATH}:knows", "-n", "2", "--live") == 0
    shown = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    first = shown[shown.index("problem Chile, chain 0") : shown.index("problem Japan, chain 0")]
    assert first == [
        "problem Chile, chain 0",
        "     read | <|im_start|>user",
        "          | What is the capital of Chile?<|im_end|>",
        "          | <|im_start|>assistant",
        "          |",
        "  sampled > <tool_call>",
        '          > {"name": "look_up", "arguments": {"country": "Chile"}}',
        "          > </tool_call><|im_end|>",
        "     read |",
        "          | <|im_start|>user",
        "          | <tool_response>",
        "          | Santiago",
        "          | </tool_response><|im_end|>",
        "          | <|im_start|>assistant",
        "          |",
        "  sampled > <tool_call>",
        '          > {"name": "answer", "arguments": {"text": "Santiago"}}',
        "          > </tool_call><|im_end|>",
        "    after . answer: Santiago",
        "ended terminal",
        "",
    ]
    assert rewards(store, "atlas-1") == [1.0, 1.0]
    assert store.read_json(PlayLayout("atlas-1").record)["way"] == "live"


def chat(monkeypatch: pytest.MonkeyPatch, policy: str, *typed: str) -> int:
    """Type these lines and the end of the input in a chat about Japan."""
    monkeypatch.setattr(sys, "stdin", io.StringIO("".join(f"{line}\n" for line in typed)))
    return played("--policy", f"{PATH}:{policy}", "--problem", "Japan", "--chat")


def test_a_chat_shows_tool_calls_and_results(
    store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert chat(monkeypatch, "knows", "And its capital?") == 0
    out = capsys.readouterr().out
    shown = out[out.index("problem Japan") :].splitlines()
    assert shown[:6] == [
        "problem Japan: What is the capital of Japan?",
        "An empty line ends the chat.",
        'you>    call>   look_up {"country": "Japan"}',  # a terminal shows typed text
        "tool>   look_up: Tokyo",
        'call>   answer {"text": "Tokyo"}',
        "tool>   answer: Tokyo",
    ]
    (trajectory,) = episodes(store, "atlas-1")
    assert trajectory.turns[0].read == (Message("user", "And its capital?"),)
    assert (trajectory.ending, trajectory.agent) == (Ending.TERMINAL, "chat")


def test_a_chat_is_not_scored_and_play_json_marks_it(
    store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert chat(monkeypatch, "chats", "hi", "there") == 0
    out = capsys.readouterr().out.splitlines()
    assert out[-4] == "1 episode of 1 problem: 1 no_tool_calls"
    assert out[-3] == "0 tool calls, 0 answered with an error"
    assert not any(word in line for line in out for word in ("solved", "reward"))
    assert store.read_json(PlayLayout("atlas-1").record)["way"] == "chat"


@pytest.mark.parametrize("last", [[], [""], ["", "never read"]])
def test_a_chat_ends_with_an_empty_line_or_the_end_of_the_input(
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    last: list[str],
) -> None:
    assert chat(monkeypatch, "chats", "Norway's?", "Are you sure?", *last) == 0
    (trajectory,) = episodes(store, "atlas-1")
    typed = [item.content for turn in trajectory.turns for item in turn.read]
    assert typed == ["Norway's?", "Are you sure?"]
    assert trajectory.ending is Ending.NO_TOOL_CALLS
    out = capsys.readouterr().out
    assert out.count("you>    policy> I think that it is Oslo.\n") == 2
    assert out.count("you>") == 3


def test_a_chat_without_messages_is_not_stored(
    store: Store, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert chat(monkeypatch, "chats") == 0
    assert capsys.readouterr().out.endswith("The chat is empty and was not stored.\n")
    assert store.names(PLAYS) == []


def test_exported_episodes_are_imported_as_they_were(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert played("--policy", "random", "-n", "6") == 0
    assert main(["export", "play:atlas-1", "out", "--episodes"]) == 0
    assert "6 traces.jsonl" in capsys.readouterr().out
    assert main(["import", "out/traces.jsonl", "atlas.yaml"]) == 0
    printed = capsys.readouterr().out
    assert "play:atlas-2: 6 episodes" in printed
    assert "The token ids of 6 of 6 traces were kept." in printed
    one, other = ({t.id: t for t in episodes(store, name)} for name in ("atlas-1", "atlas-2"))
    assert one == other
    assert main(["show", "play:atlas-2"]) == 0
    assert "play:atlas-2, traces.jsonl on a file: 6 episodes" in capsys.readouterr().out
    assert main(["export", "play:atlas-1", "out", "--episodes"]) == 2
    assert main(["export", "play:atlas-1", "none", "--episodes", "--speaker", "critic"]) == 2
    assert "No episode has a reply of the speaker 'critic'" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()
