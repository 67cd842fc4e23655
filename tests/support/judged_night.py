"""A night as the store has it after it was played and judged, made without a model or a service."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from agentfly_core.config.reference import RunPolicy
from agentfly_core.experiment.experiment import Experiment
from agentfly_core.experiment.keys import StageKeys
from agentfly_core.pipeline.stop_conditions import lasting
from agentfly_core.records import dataset, ledger
from agentfly_core.records.parquet import EPISODES, SCORES, write_scores, write_trajectories
from agentfly_core.records.trajectory import Problem, Scored, Trajectory, Unscored
from agentfly_core.reports.nights.held_out import held_out
from agentfly_core.reports.nights.night_ledger import Champion, Judgement, NightLedger
from agentfly_core.reports.nights.promotion_gate import judge
from agentfly_core.runs.metrics import point
from agentfly_core.runs.run import Run, opened
from agentfly_core.runs.summary import Evaluations, summarise
from agentfly_core.store.artifact import Artifact, ArtifactKey
from agentfly_core.store.stage_metrics import measuring
from agentfly_core.system.formats.json_value import as_json
from agentfly_core.testing.trajectories import trajectory, turn

Answers = Callable[[int], tuple[str, float | Unscored]]
"""Reply and reward of a policy by the number of the test problem."""


def played_night(
    experiment: Experiment,
    night: str,
    before: Answers,
    after: Answers,
    steps: Sequence[Mapping[str, float]],
) -> NightLedger:
    """Store a first night with these step metrics, eight episodes a step, and compare its policy
    with its starting policy.
    """
    data = published(
        experiment,
        StageKeys(experiment.settings).prepare(),
        lambda folder: _data(experiment, folder),
    )
    book = NightLedger(experiment.store, experiment.name)
    book.append(night, "began")
    with opened(experiment, night) as run:
        start, end = _policies(run, data, len(steps))
        for number, metrics in enumerate(steps, 1):
            _step(run, number, metrics)
        for policy, answers in ((start, before), (end, after)):
            evaluated(experiment, policy, data, "test", answers)
        evaluations = [Evaluations(experiment).stored(p, "test", data) for p in (start, end)]
        summary = summarise(run, end, evaluations)
        experiment.store.write_json(run.layout.summary, as_json(summary))
    book.append(night, "finished")
    champion = Champion(RunPolicy(night, 0), start)
    challenger = Champion(RunPolicy(night, 9), end)
    both = [held_out(Evaluations(experiment), policy, data) for policy in (start, end)]
    verdict = judge(both[0], both[1], experiment.settings.promotion)
    details = Judgement(verdict, champion, challenger)
    event = "promoted" if verdict.promoted else "kept"
    book.append(night, event, verdict.why, details)
    return book


def evaluated(
    experiment: Experiment, policy: Artifact, data: Artifact, split: str, answers: Answers
) -> None:
    """Publish a policy's episodes and scores on a split, in one shard."""
    problems = dataset.split(experiment.store.open(data), split)
    goal = experiment.whole.goal
    episodes = [_episode(problem, goal, *answers(i)) for i, problem in enumerate(problems)]
    target = StageKeys(experiment.settings).evaluation(policy, data, split, 0, {})
    played = published(
        experiment,
        target,
        lambda folder: write_trajectories(folder / EPISODES, [each for each, _ in episodes]),
    )
    published(
        experiment,
        StageKeys(experiment.settings).scored([played]),
        lambda folder: write_scores(folder / SCORES, [score for _, score in episodes]),
    )


def published(
    experiment: Experiment, target: ArtifactKey, write: Callable[[Path], None]
) -> Artifact:
    """An artifact that `write` filled."""
    with experiment.store.publish(target) as folder, measuring(folder):
        write(folder)
    return experiment.store.artifact(target.uri)


def _data(experiment: Experiment, folder: Path) -> None:
    dataset.prepare(
        experiment.settings.data, experiment.settings.data_seed, folder, folder / "quarantine.json"
    )


def _policies(run: Run, data: Artifact, steps: int) -> list[Artifact]:
    """The policies before the first and after the last step."""

    def policy(number: int) -> Artifact:
        target = ArtifactKey(run.layout.step(number).policy, "update", f"policy-{number}", {})
        return published(run.experiment, target, lambda folder: _weights(folder, number))

    start, *_, end = [policy(number) for number in range(steps + 1)]
    run.remember_start(start, {"prepare": [data]})
    return [start, end]


def _weights(folder: Path, number: int) -> None:
    (folder / "weights").write_text(str(number))


def _step(run: Run, number: int, metrics: Mapping[str, float]) -> None:
    layout = run.layout.step(number)
    rows = [ledger.LedgerRow(number, "single", f"a-{number:03d}", 8, 8, 0.5, "used")]
    scored = ArtifactKey(layout.scored, "score", f"scored-{number}", {})
    published(run.experiment, scored, lambda folder: ledger.write(folder, rows))
    seconds = {"time/rollout": 60.0, "time/score": 2.0, "time/update": 30.0}
    metrics_of_step = {**seconds, **metrics}
    last = run.store.read_json(run.layout.step(number - 1).metrics) or {"metrics": {}}
    metrics_of_step |= lasting(run.settings.health, metrics_of_step, last["metrics"])
    now = NightLedger(run.store, run.experiment.name).read().entries[-1].time_ms
    run.store.write_json(layout.metrics, point(number, metrics_of_step, now + number * 60_000))


def _episode(
    problem: Problem, goal: str, reply: str, reward: float | Unscored
) -> tuple[Trajectory, Scored]:
    name = problem.id
    reply_turn = turn([1, 2, 3], dict.fromkeys(range(len(reply)), -0.1), reply=reply)
    rewards = {} if isinstance(reward, Unscored) else {"exact": reward, goal: reward}
    played = trajectory(reply_turn, name=name, problem=problem, role="evaluation")
    return played, Scored(name, rewards, (), reward)
