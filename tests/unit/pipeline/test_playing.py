"""Episodes of a step, and stages that stop if too much is missing."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from agentfly_core.authoring.environment import Environment, ServiceFailure
from agentfly_core.authoring.reward import reward
from agentfly_core.authoring.tool import tool
from agentfly_core.config.experiment import Settings
from agentfly_core.experiment.experiment import Experiment
from agentfly_core.inference.sampler import Request
from agentfly_core.inference.scripted import Scripted
from agentfly_core.pipeline.demonstrations import DemonstrationPlayer
from agentfly_core.pipeline.playing import (
    of_step,
    of_test,
    play_shard,
    rollout_spec,
)
from agentfly_core.pipeline.scoring import check_rewards, score_episodes
from agentfly_core.pipeline.stop_conditions import GateClosed
from agentfly_core.records import ledger
from agentfly_core.records.parquet import EPISODES, SCORES, read_scores, read_trajectories
from agentfly_core.records.trajectory import Ending, Problem, Sampled, Trajectory
from agentfly_core.rollout.episode import Episode
from agentfly_core.rollout.pool import Limit
from agentfly_core.rollout.resources import resources_for
from agentfly_core.rollout.rules import Frozen
from agentfly_core.testing.episodes import saying
from tests.support.experiments import experiment_of

PROBLEMS = [Problem(f"add-{i}", f"What is {i}+1?", {"answer": str(i + 1)}) for i in range(8)]
CALL = '<tool_call>\n{"name": "shop", "arguments": {}}\n</tool_call>'


@tool
async def shop() -> str:
    """Go shopping."""
    raise ServiceFailure("the shop is closed")


@reward
def fussy(trajectory: Trajectory) -> float:
    raise KeyError("colour")


@reward
def fussy_about_baselines(trajectory: Trajectory) -> float:
    return {"train": 1.0}[trajectory.role]


class Room(Environment):
    async def reset(self, problem: Problem) -> None:
        pass


@reward
def tidy(room: Room) -> float:
    raise KeyError("broom")


def asks_the_shop(problems: Any, seed: int) -> Any:
    return saying(CALL)


def settings_with(**changes: Any) -> Settings:
    settings = {
        "model": "nano:calculator",
        "data": {"use": "a:b", "train": 8, "test": 1},
        "tools": ["tests.unit.pipeline.test_playing:shop"],
        "rewards": {"tests.unit.pipeline.test_playing:fussy": 1.0},
        "rollout": {"problems": 8, "group_size": 1},
        "warm_start": {
            "demonstrations": "tests.unit.pipeline.test_playing:asks_the_shop",
            "episodes": 8,
        },
        "steps": 1,
    }
    return Settings.model_validate(settings | changes)


@pytest.fixture(scope="module")
def tokenizer(nano: Path) -> Any:
    return AutoTokenizer.from_pretrained(nano, trust_remote_code=False)


def played(
    rules: Settings,
    tokenizer: Any,
    reply: str,
    folder: Path,
    kind: type[Scripted] = Scripted,
    frozen: Mapping[str, Frozen] = {},
) -> None:
    stop = tokenizer.convert_tokens_to_ids("<|im_end|>")
    encode = partial(tokenizer.encode, add_special_tokens=False)
    sampler = kind(encode, stop, saying(*[reply] * rules.agent.max_turns))
    problems = PROBLEMS[: rules.rollout.problems]
    with resources_for({Room: Limit(8)}) as here:
        experiment = experiment_of(rules)
        episodes = of_step(rules.rollout, rules.seeds_of(1), problems, 1, experiment.greedy)
        play_shard(
            rollout_spec(experiment.whole, experiment.mixture, tokenizer, frozen),
            rules.gates,
            sampler,
            episodes,
            folder,
            lambda trajectory: None,
            here,
        )


def test_a_baseline_is_one_more_greedy_episode_of_each_problem(
    tokenizer: Any, tmp_path: Path
) -> None:
    temperatures: dict[tuple[str, int], float] = {}

    class Listening(Scripted):
        async def sample(self, request: Request) -> Sampled:
            temperatures[request.conversation.order[:2]] = request.params.temperature
            return await super().sample(request)

    rules = settings_with(
        algorithm="remax", rollout={"problems": 2, "group_size": 2, "temperature": 0.7}
    )
    played(rules, tokenizer, "2", tmp_path, Listening)
    episodes = [(t.problem.id, t.chain, t.role) for t in read_trajectories(tmp_path / EPISODES)]
    assert [(*episode, temperatures[episode[:2]]) for episode in episodes] == [
        ("add-0", 0, "train", 0.7),
        ("add-0", 1, "train", 0.7),
        ("add-0", 2, "baseline", 0.0),
        ("add-1", 0, "train", 0.7),
        ("add-1", 1, "train", 0.7),
        ("add-1", 2, "baseline", 0.0),
    ]


def test_a_baseline_is_scored_but_not_in_the_ledger(tokenizer: Any, tmp_path: Path) -> None:
    rewards = {"agentfly_core.rewards.exact:exact": 1.0}
    rules = settings_with(
        algorithm="remax", rewards=rewards, rollout={"problems": 2, "group_size": 2}
    )
    played(rules, tokenizer, "2", tmp_path)
    score_episodes(experiment_of(rules), [tmp_path], [], 1, tmp_path)
    assert len(read_scores(tmp_path / SCORES)) == 6
    assert ledger.joined([tmp_path])["episodes"].tolist() == [2, 2]


def test_no_two_training_episodes_have_the_same_seed() -> None:
    rules = settings_with(rollout={"problems": 8, "group_size": 2})
    assert (
        len(
            {
                episode_spec.seed
                for step in (1, 2)
                for episode_spec in of_step(
                    rules.rollout, rules.seeds_of(step), PROBLEMS, step, False
                )
            }
        )
        == 2 * 8 * 2
    )


def test_an_evaluation_has_its_own_temperature() -> None:
    rules = settings_with(
        rollout={"problems": 8, "temperature": 0.7}, evaluate={"episodes": 2, "temperature": 0.2}
    )
    played_with = [
        (a.chain, a.role, a.temperature)
        for a in of_test(rules.evaluate, rules.data_seed, PROBLEMS[:1], "test")
    ]
    assert played_with == [(0, "evaluation", 0.2), (1, "evaluation", 0.2)]


def test_a_shard_stops_if_the_tools_service_fails(tokenizer: Any, tmp_path: Path) -> None:
    with pytest.raises(GateClosed, match=r"8 of 8 episodes failed .*shop is closed"):
        played(settings_with(), tokenizer, CALL, tmp_path)


def test_a_shard_without_environment_rewards_is_discarded(tokenizer: Any, tmp_path: Path) -> None:
    with pytest.raises(GateClosed, match=r"8 of 8 episodes .*tidy: KeyError: 'broom'"):
        played(
            settings_with(
                rewards={"tests.unit.pipeline.test_playing:tidy": 1.0},
                environments={"tests.unit.pipeline.test_playing:Room": 8},
            ),
            tokenizer,
            "2",
            tmp_path,
        )


def player_of(experiment: Experiment, tokenizer: Any) -> DemonstrationPlayer:
    spec, settings = (
        rollout_spec(experiment.whole, experiment.mixture, tokenizer),
        experiment.settings,
    )
    of = (settings.warm_start, settings.quotas, settings.seed, settings.gates.failed)
    return DemonstrationPlayer(spec, tokenizer, PROBLEMS, *of)


def test_demonstrations_stop_if_the_tools_service_fails(tokenizer: Any, tmp_path: Path) -> None:
    with (
        resources_for({}) as here,
        pytest.raises(GateClosed, match=r"8 of 8 episodes failed .*shop is closed"),
    ):
        made = experiment_of(settings_with())
        shown = player_of(made, tokenizer)
        shown.play(made.settings.warm_start.episodes, tmp_path, here)


def test_failed_demonstrations_of_nano_name_their_function(tokenizer: Any) -> None:
    experiment = experiment_of(settings_with())
    message = rf"is made from .* {experiment.settings.warm_start.demonstrations}, .*shop"
    with pytest.raises(GateClosed, match=message):
        player_of(experiment, tokenizer).spans()


def test_missing_scores_stop_the_stage(tokenizer: Any, tmp_path: Path) -> None:
    played(settings_with(), tokenizer, "2", tmp_path)
    with pytest.raises(GateClosed, match=r"8 of 8 episodes .*fussy: KeyError: 'colour'"):
        score_episodes(experiment_of(settings_with()), [tmp_path], [], 1, tmp_path)


def test_missing_scores_of_baselines_stop_the_stage_too(tokenizer: Any, tmp_path: Path) -> None:
    rules = settings_with(
        algorithm="remax", rewards={"tests.unit.pipeline.test_playing:fussy_about_baselines": 1.0}
    )
    played(rules, tokenizer, "2", tmp_path)
    with pytest.raises(GateClosed, match=r"8 of 16 episodes .*KeyError: 'baseline'"):
        score_episodes(experiment_of(rules), [tmp_path], [], 1, tmp_path)


def test_an_experiment_may_allow_more_missing_scores(tokenizer: Any, tmp_path: Path) -> None:
    lenient = settings_with(gates={"failed": 1.0, "unscored": 1.0})
    played(lenient, tokenizer, CALL, tmp_path)
    assert (
        score_episodes(experiment_of(lenient), [tmp_path], [], 1, tmp_path)["rollout/ending/failed"]
        == 1.0
    )


async def halved(episode: Episode) -> Ending:
    """A speaker that gives its answer only after a tool call."""
    solver = episode.speaker("solver")
    reply = await solver.reply(*episode.opening)
    if reply.calls:
        solver.answer("7")
    return Ending.NO_TOOL_CALLS


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"agent": {"max_turns": 1}, "tools": []},
            r"8 of 8 episodes .*fussy: KeyError: 'colour'",
        ),
        (
            {"tools": [], "agent": {"use": "tests.unit.pipeline.test_playing:halved"}},
            r"was not started: .*returned Ending.NO_TOOL_CALLS without an answer",
        ),
        ({}, r"8 of 8 episodes failed .*the shop is closed"),
    ],
    ids=["reward", "answer", "service"],
)
def test_eight_demonstrations_are_scored_before_the_warm_start(
    nano: Path, changes: Any, message: str
) -> None:
    tokenizer = AutoTokenizer.from_pretrained(nano)
    experiment = experiment_of(settings_with(**changes))
    with resources_for({}) as here, pytest.raises(GateClosed, match=message):
        played = player_of(experiment, tokenizer).rehearse(here)
        scores = experiment.scores(played, played)
        check_rewards(played, scores, experiment.settings.gates.unscored)


def test_demonstrations_with_rewards_pass_the_rehearsal(nano: Path) -> None:
    exact = {"agentfly_core.rewards.exact:exact": 1.0}
    experiment = experiment_of(settings_with(tools=[], rewards=exact, agent={"max_turns": 1}))
    with resources_for({}) as here:
        tokenizer = AutoTokenizer.from_pretrained(nano)
        played = player_of(experiment, tokenizer).rehearse(here)
        scores = experiment.scores(played, played)
        check_rewards(played, scores, experiment.settings.gates.unscored)
    assert len(played) == 8
