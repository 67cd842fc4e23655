"""Traces: exported and imported again, and those of other programs."""

import json
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentfly_core.experiment.experiment import Experiment
from agentfly_core.experiment.run_layout import PlayLayout
from agentfly_core.pipeline import inputs
from agentfly_core.pipeline.demonstrations import DemonstrationPlayer
from agentfly_core.pipeline.play.exported import CHATS, TRACES, export
from agentfly_core.pipeline.play.imported import Imported, import_traces
from agentfly_core.pipeline.playing import rollout_spec
from agentfly_core.pipeline.recorded_chats import calls_of
from agentfly_core.pipeline.rescoring import new_reward, rescored_play
from agentfly_core.records.dataset import split
from agentfly_core.records.parquet import EPISODES, SCORES, read_scores, read_trajectories
from agentfly_core.records.trajectory import Branch, Sampled, Score, Trajectory
from agentfly_core.reports.show import rescored_view
from agentfly_core.reports.show.rescored_view import TwiceScored
from agentfly_core.rollout.resources import resources_for
from flows.__main__ import main
from tests.support.chats import chats_read, json_lines
from tests.support.experiments import experiment
from tests.support.project import ROOT

TOOLS = ("agentfly_core.tools.calculator:calculator", "agentfly_core.tools.answer:answer")
SCRIPT = {
    "demonstrations": "agentfly_core.datasets.demonstrations:calculator",
    "settings": {"spoilt": 0.5},
}
SUMS = {"use": "agentfly_core.datasets.arithmetic:arithmetic", "train": 16, "test": 8}
RECIPE = "agentfly_core.recipes.planner_executor"
PLANNER_EXECUTOR = {
    "data": {**SUMS, "use": f"{RECIPE}.dataset:two_steps", "validation": 0},
    "agent": {
        "use": "agentfly_core.agents.planner_executor:PlannerExecutor",
        "planner": "Plan.",
        "executor": "Work.",
        "max_model_len": 1024,
    },
    "template": {"use": "hermes", "show_tools": True},
    "warm_start": {"demonstrations": f"{RECIPE}.demonstrations:planner_executor"},
}
FIXTURES = ROOT / "tests/fixtures/traces"
Change = Callable[[dict[str, Any]], None]


def adding(tmp_path: Path, **changes: Any) -> Experiment:
    """An experiment whose demonstrations are wrong half of the time."""
    template = {"use": "hermes", "show_tools": False}
    data = {**SUMS, "validation": 0}
    usual = {"template": template, "data": data, "tools": TOOLS, "warm_start": SCRIPT}
    return experiment(tmp_path, **{**usual, **changes})


def played(of: Experiment, folder: Path) -> list[Trajectory]:
    tokenizer, _ = inputs.tokenizer(of)
    spec, warm_start = rollout_spec(of.whole, {}, tokenizer), of.settings.warm_start
    problems = split(of.store.open(inputs.dataset(of)), "train")
    assert warm_start is not None
    player = DemonstrationPlayer(
        spec, tokenizer, problems, warm_start, of.settings.quotas, 0, failed=0.0
    )
    folder.mkdir()
    with resources_for(spec.limits) as resources:
        player.play(32, folder, resources)
    return read_trajectories(folder / EPISODES)


def stored(of: Experiment, play: Imported) -> list[Trajectory]:
    rollout = of.store.artifact(PlayLayout(play.name).rollout(0))
    return read_trajectories(of.store.open(rollout) / EPISODES)


def changed(first: Trajectory) -> Trajectory:
    """A trajectory with a value in each field that a played demonstration leaves empty."""
    (one, *turns), sampled = first.turns, first.turns[0].sampled[0]
    size = len(sampled.tokens)
    head = Sampled(sampled.tokens[:2], (-0.5, -0.25), 3, "stop", (0.5, 0.25), trained=False)
    rest = replace(sampled, tokens=sampled.tokens[2:], logprobs=(-0.125,) * (size - 2))
    opening = replace(one, sampled=(head, rest), temperature=0.0, state="a", reward=0.5)
    problem = replace(first.problem, tools=("calculator", "answer"))
    return replace(
        first,
        turns=(opening, *turns),
        problem=problem,
        role="train",
        answered="99",
        branch=Branch("before", 1),
        observed={"other": Score(0.5, {"part": 1.0}, (0.5,))},
    )


def test_exported_and_imported_traces_are_equal(tmp_path: Path) -> None:
    of = adding(tmp_path)
    first, *others = played(of, tmp_path / "played")
    episodes = [changed(first), *others]
    counts = export(episodes, "", tmp_path / "out")
    assert counts == {"chats.jsonl": 32, "traces.jsonl": 32, "left out": 0, "without token ids": 0}
    play = import_traces(of, tmp_path / "out/traces.jsonl", "agentfly import")
    assert (play.episodes, play.traces, play.kept) == (32, 32, 32)
    assert stored(of, play) == episodes
    with pytest.raises(ValueError, match=r"out already exists; .*new folder"):
        export(episodes, "", tmp_path / "out")
    with pytest.raises(ValueError, match=r"No episode .*critic"):
        export(episodes, "critic", tmp_path / "none")


@pytest.mark.parametrize(("speaker", "traces"), [("", 64), ("planner", 32), ("executor", 32)])
def test_episodes_of_several_speakers_are_equal_after_import(
    speaker: str, traces: int, tmp_path: Path
) -> None:
    """The executor opens a context for each step, with tools that the planner does not have."""
    of = adding(tmp_path, **PLANNER_EXECUTOR)
    episodes = [changed(one) for one in played(of, tmp_path / "played") if one.turns]
    export(episodes, speaker, tmp_path / "out")
    play = import_traces(of, tmp_path / "out/traces.jsonl", "agentfly import")
    assert (play.episodes, play.traces, play.kept) == (traces, traces, traces)
    assert stored(of, play) == [one for one in episodes if speaker in ("", one.speaker)]


def test_imported_episodes_are_shown_and_scored(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    of = adding(tmp_path)
    export(played(of, tmp_path / "played"), "", tmp_path / "out")
    play = import_traces(of, tmp_path / "out/traces.jsonl", "agentfly import")
    name, at = f"play:{play.name}", ("--store", of.store.uri)
    reward = ("--reward", "agentfly_core.rewards.format:tool_format")
    documents = []
    for _ in range(2):
        assert main(["score", name, *reward, "--json", *at]) == 0
        documents.append(json.loads(capsys.readouterr().out))
    assert documents[0] == documents[1]
    assert documents[0]["run"] == name
    assert documents[0]["all"] == {"episodes": 32, "old": 0.5, "new": 1.0, "tau": None}
    assert main(shlex.split(documents[0]["furthest"][0]["command"])[1:]) == 0
    assert "; reward 0 (exact 0)" in capsys.readouterr().out
    with pytest.raises(ValueError, match=rf"play:other.*{play.name}"):
        rescored_play(of.store, "other", [])


def test_imported_episodes_without_own_rewards_are_scored(tmp_path: Path) -> None:
    """The dataset lacks the trace's problem, so there is no right answer."""
    of = adding(tmp_path)
    play = import_traces(of, FIXTURES / "openenv-0.10.0.jsonl", "agentfly import")
    rewards = [new_reward("agentfly_core.rewards.format:tool_format")]
    scored = TwiceScored.of([rescored_play(of.store, play.name, rewards)])
    assert rescored_view.as_json("play", rewards, scored, of.store)["all"] == {
        "episodes": 1,
        "old": None,
        "new": 1.0,
        "tau": None,
    }


def test_exported_chats_and_traces_are_imitated_with_their_tokens(tmp_path: Path) -> None:
    of = adding(tmp_path)
    episodes = played(of, tmp_path / "played")
    export(episodes, "", tmp_path / "out")
    for file in (CHATS, TRACES):
        there = adding(tmp_path, warm_start={"demonstrations": f"file:{tmp_path / 'out' / file}"})
        read = chats_read(there)
        recorded = read_trajectories(there.store.open(read) / EPISODES)
        assert [calls_of(one) for one in recorded] == [*map(calls_of, episodes)]


def test_our_traces_of_another_template_are_made_anew(tmp_path: Path) -> None:
    of = adding(tmp_path)
    export(played(of, tmp_path / "played"), "", tmp_path / "out")
    showing = adding(tmp_path, template={"use": "hermes", "show_tools": True})
    play = import_traces(showing, tmp_path / "out/traces.jsonl", "agentfly import")
    tokenizer, _ = inputs.tokenizer(showing)
    prompts = [tokenizer.decode(list(one.turns[0].given.tokens)) for one in stored(showing, play)]
    assert len(prompts) == 32
    assert all("calculator" in prompt for prompt in prompts)


@pytest.mark.parametrize(
    ("name", "episodes"),
    [("openenv-0.10.0", 1), ("verifiers-0.4.0", 1), ("chat-completions", 2)],
)
def test_traces_of_other_programs_keep_their_ids_and_are_scored(
    name: str, episodes: int, tmp_path: Path
) -> None:
    of = adding(tmp_path)
    play = import_traces(of, FIXTURES / f"{name}.jsonl", "agentfly import")
    assert (play.episodes, play.traces, play.kept) == (episodes, episodes, episodes)
    last = stored(of, play)[-1]
    logged = json.loads((FIXTURES / "openenv-0.10.0.jsonl").read_text())["turns"][-1]
    reply = last.turns[-1].sampled[0]
    assert reply.tokens == tuple(logged["completion_token_ids"])
    assert reply.logprobs == pytest.approx(logged["per_token_logps"], abs=1e-6)
    assert all(span.trained for turn in last.turns for span in turn.sampled)
    scored = of.store.open(of.store.artifact(PlayLayout(play.name).scored)) / SCORES
    assert len(read_scores(scored)) == episodes


def test_branches_of_a_verifiers_trace_are_contexts(tmp_path: Path) -> None:
    """The reply 4 has the prompt of 1, 6 that of a new root, and 8 continues the context of 3."""
    of, file = adding(tmp_path), FIXTURES / "verifiers-0.4.0-branches.jsonl"
    nodes = json.loads(file.read_text())["nodes"]
    play = import_traces(of, file, "agentfly import")
    assert (play.episodes, play.traces, play.kept) == (1, 1, 1)
    (trajectory,) = stored(of, play)
    assert [turn.context for turn in trajectory.turns] == [0, 0, 1, 2, 0]
    assert [turn.sampled[0].logprobs for turn in trajectory.turns] == [
        pytest.approx(node["logprobs"], abs=1e-6) for node in nodes if node["sampled"]
    ]
    contexts = [tokens_along(nodes, leaf) for leaf in (8, 4, 6)]
    assert [*whole_contexts(trajectory).values()] == contexts
    there = adding(tmp_path, warm_start={"demonstrations": f"file:{file}"})
    read = chats_read(there)
    (imitated,) = read_trajectories(there.store.open(read) / EPISODES)
    assert calls_of(imitated) == calls_of(trajectory)


def tokens_along(nodes: list[dict[str, Any]], leaf: int | None) -> list[int]:
    if leaf is None:
        return []
    return [*tokens_along(nodes, nodes[leaf]["parent"]), *nodes[leaf]["token_ids"]]


def whole_contexts(trajectory: Trajectory) -> dict[int, list[int]]:
    contexts: dict[int, list[int]] = {}
    for turn in trajectory.turns:
        tokens = [*turn.given.tokens, *(token for span in turn.sampled for token in span.tokens)]
        contexts.setdefault(turn.context, []).extend(tokens)
    return contexts


def test_a_parent_that_comes_later_is_refused(tmp_path: Path) -> None:
    row = json.loads((FIXTURES / "verifiers-0.4.0.jsonl").read_text())
    row["nodes"][1]["parent"] = 2
    with pytest.raises(ValueError, match=r"node 1 .*parent 2, expected"):
        import_traces(adding(tmp_path), json_lines(tmp_path / "x.jsonl", [row]), "import")


def test_a_node_without_all_log_probabilities_is_refused(tmp_path: Path) -> None:
    row = json.loads((FIXTURES / "verifiers-0.4.0.jsonl").read_text())
    sampled = next(node for node in row["nodes"] if node["sampled"])
    sampled["logprobs"].pop()
    with pytest.raises(ValueError, match=r"row 1: .*log-probabilities and \d+ sampled tokens"):
        import_traces(adding(tmp_path), json_lines(tmp_path / "x.jsonl", [row]), "import")


def rewritten_history(row: dict[str, Any]) -> None:
    """The second prompt has no call, as if the agent had summarised it."""
    for message in (turn := row["turns"][1])["request"]["messages"][1:]:
        turn["request"]["messages"].remove(message)
    turn["prompt_token_ids"] = row["turns"][0]["prompt_token_ids"]
    turn["loss_mask"] = [0] * len(turn["prompt_token_ids"]) + turn["loss_mask"][-10:]


def test_a_step_with_another_history_opens_a_context(tmp_path: Path) -> None:
    of, row = adding(tmp_path), json.loads((FIXTURES / "openenv-0.10.0.jsonl").read_text())
    rewritten_history(row)
    play = import_traces(of, json_lines(tmp_path / "x.jsonl", [row]), "agentfly import")
    (chat,) = stored(of, play)
    assert play.kept == 1
    assert [turn.context for turn in chat.turns] == [0, 1]


def other_prompt(row: dict[str, Any]) -> None:
    row["turns"][1]["prompt_token_ids"][3] += 1


def other_text(row: dict[str, Any]) -> None:
    row["turns"][1]["response"]["choices"][0]["message"]["content"] = "It is 98."


def partial_mask(row: dict[str, Any]) -> None:
    row["turns"][1]["loss_mask"][-1] = 0


@pytest.mark.parametrize(
    ("change", "kept", "spans"), [(other_prompt, 0, 1), (other_text, 0, 1), (partial_mask, 1, 2)]
)
def test_ids_of_another_prompt_or_text_are_made_anew(
    change: Change, kept: int, spans: int, tmp_path: Path
) -> None:
    of, row = adding(tmp_path), json.loads((FIXTURES / "openenv-0.10.0.jsonl").read_text())
    change(row)
    play = import_traces(of, json_lines(tmp_path / "x.jsonl", [row]), "agentfly import")
    assert (play.traces, play.kept) == (1, kept)
    (chat,) = stored(of, play)
    assert [span.trained for span in chat.turns[1].sampled] == [True, False][:spans]


def shorter_mask(row: dict[str, Any]) -> None:
    row["turns"][0]["loss_mask"].pop()


def later_version(row: dict[str, Any]) -> None:
    row["schema_version"] = 2


def no_prompt(row: dict[str, Any]) -> None:
    del row["turns"][0]["prompt_token_ids"]


def negative(row: dict[str, Any]) -> None:
    row["turns"][0]["prompt_token_ids"][0] = -1


def other_metadata(row: dict[str, Any]) -> None:
    row["turns"][0]["metadata"] = {"agentfly": {"id": "9f2c01d4"}}


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (other_metadata, "metadata.agentfly is not a trajectory: "),
        (shorter_mask, "sampled tokens, .* log-probabilities and .* mask entries"),
        (later_version, "the trace has version 2 of its format, expected 1"),
        (no_prompt, "'turns' cannot be read: .*prompt_token_ids"),
        (negative, "greater than or equal to 0"),
    ],
)
def test_damaged_traces_are_refused_by_row(change: Change, fault: str, tmp_path: Path) -> None:
    damaged = json.loads((FIXTURES / "openenv-0.10.0.jsonl").read_text())
    change(damaged)
    with pytest.raises(ValueError, match=rf"x\.jsonl, row 1: .*{fault}"):
        import_traces(adding(tmp_path), json_lines(tmp_path / "x.jsonl", [damaged]), "import")
