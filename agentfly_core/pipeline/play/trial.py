"""Play some problems with the oracle and with an idle policy. This needs no model.

The oracle is the function in the setting `warm_start.demonstrations`. The oracle makes no
deliberate mistakes. The idle policy replies with empty texts.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

from agentfly_core.authoring import injection
from agentfly_core.authoring.chat_template import Conversation
from agentfly_core.authoring.event_loop import HeldCalls, run, without_held_calls
from agentfly_core.authoring.reward import Reward
from agentfly_core.authoring.scoring import score_here
from agentfly_core.config.reference import is_scripted
from agentfly_core.experiment.experiment import Experiment
from agentfly_core.experiment.task import Task
from agentfly_core.inference.scripted import ScriptedPolicy
from agentfly_core.models.type_names import PreTrainedTokenizerBase
from agentfly_core.pipeline.demonstrations import boundless
from agentfly_core.pipeline.play.players import oracle
from agentfly_core.pipeline.playing import of_split, rollout_spec, scripted
from agentfly_core.pipeline.stop_conditions import GateClosed
from agentfly_core.pipeline.workers.job import Blame
from agentfly_core.records.speakers import reaches
from agentfly_core.records.trajectory import Ending, Problem, Trajectory, Unscored
from agentfly_core.rollout.episode import RolloutSpec
from agentfly_core.rollout.resources import resources_for
from agentfly_core.rollout.rules import EpisodeSpec
from agentfly_core.rollout.shard import collect
from agentfly_core.system.formats.text import clip, counted, fault, sentence

PLAYED = 16
"""The maximum number of problems that `trials` plays."""
LONGEST, SHOWN = 300, 3
T = TypeVar("T")

logger = logging.getLogger(__name__)


def evenly(items: Sequence[T], most: int) -> list[T]:
    """Return at most `most` items, evenly spread over `items`."""
    count = min(most, len(items))
    return [items[len(items) * number // count] for number in range(count)]


async def idle(conversation: Conversation) -> str:
    """Play as the idle policy, which always replies with an empty text."""
    return ""


def asks_a_service(reward: Reward) -> bool:
    """Whether a reward probably uses a service, such as a judge model.

    This is assumed if the reward sets retries or concurrency.
    """
    return reward.retries > 0 or reward.concurrency is not None


def scores_answers(reward: Reward) -> bool:
    """Whether a reward has example answers (the option `examples` of `@reward`), and can score them
    without an environment or a service.
    """
    return reward.examples is not None and not reward.needs and not asks_a_service(reward)


def trials(experiment: Experiment, problems: Sequence[Problem]) -> list[str]:
    """Play some of the problems with the oracle and the idle policy. Return lines of a report.

    The oracle is the function in `warm_start.demonstrations`. At most PLAYED problems are played.
    The episodes test the environments, and each reward that needs an environment or lacks example
    answers. Rewards that use a service are not tested. No problem is played if
    `warm_start.demonstrations` is not a function, or if there is nothing to test.

    Raises GateClosed if at least half of the oracle's episodes end without an error, but none of
    them can be scored. Any other error is only logged and added to the report.
    """
    report = list[str]()
    own = [reward for reward in experiment.whole.rewards if not scores_answers(reward)]
    report += [
        f"{reward.name}: not checked, because it uses a service (retries or concurrency is set)."
        for reward in own
        if asks_a_service(reward)
    ]
    unchecked = [reward.name for reward in own if not asks_a_service(reward)]
    if not unchecked and not experiment.whole.limits:
        return report
    warm_start = experiment.settings.warm_start
    if warm_start is None or not is_scripted(warm_start.demonstrations):
        what = ", ".join(unchecked) or "The environments"
        return [
            *report,
            f"{what}: not checked, because warm_start.demonstrations is not a function.",
        ]
    # The tokens are bytes, because the model may not exist yet. Imported only now, because the
    # module loads transformers, which takes seconds.
    from agentfly_core.models.nano import byte_tokenizer

    try:
        knowing = oracle(experiment.name, warm_start, experiment.settings.seed, problems).policy
        sample = evenly(problems, PLAYED)
        temperature, seed = experiment.settings.evaluate.temperature, experiment.settings.data_seed
        specs = of_split(temperature, seed, sample, "trial", len(sample))
        tokenizer, programs = byte_tokenizer(), experiment.site.programs
        rules = rollout_spec(experiment.whole, experiment.mixture, tokenizer, programs=programs)
        spec = _without_judges(boundless(rules))
        played = partial(_played, spec, specs, tokenizer)
        episodes, tasks = played(knowing), experiment.tasks
        solved = _solved(tasks, episodes)
        # some rewards fail without an answer, and an idle policy gives none
        _require_a_score(episodes, solved)
        return report + _report(experiment.name, solved, _solved(tasks, played(idle)))
    except GateClosed:
        raise
    except Exception as error:  # a run reports errors in an author's code with their line
        logger.warning("The oracle could not play: %s", fault(error))
        return [*report, f"oracle: not checked, {clip(fault(error), LONGEST)}"]


def _require_a_score(played: Sequence[Trajectory], outcomes: Mapping[str, bool | str]) -> None:
    """Raise GateClosed if rewards could not score any of the episodes in `played`.

    `outcomes` maps the id of each problem to True (solved) or False. If the problem's episode is
    unscored, the value is the reason. Episodes with the ending FAILED or AGENT_ERROR are ignored.
    If more than half of the episodes are ignored, GateClosed is not raised.
    """
    failed = (Ending.FAILED, Ending.AGENT_ERROR)
    ended = {one.problem.id for one in played if one.ending not in failed}
    results = [outcomes.get(name) for name in ended]
    reasons = [result for result in results if isinstance(result, str)]
    if reasons and len(reasons) == len(results) and 2 * len(ended) >= len(outcomes):
        raise GateClosed(
            f"A reward failed in each episode of the oracle (episodes: {len(reasons)}). The first "
            f"error: {sentence(reasons[0])} Correct the reward."
        )


def _played(
    spec: RolloutSpec,
    specs: Sequence[EpisodeSpec],
    tokenizer: PreTrainedTokenizerBase,
    policy: ScriptedPolicy,
) -> list[Trajectory]:
    """Play the episodes with a policy."""
    sampler = scripted(policy, tokenizer, spec.template)

    def play(held: HeldCalls) -> list[Trajectory]:
        with resources_for(spec.limits) as resources:
            marked = Blame.held(held).mark(specs)
            played, _, _ = run(collect(marked, spec, sampler, lambda _: None, resources))
            return played

    return without_held_calls(play)


def _without_judges(spec: RolloutSpec) -> RolloutSpec:
    return replace(
        spec,
        rewards=tuple(reward for reward in spec.rewards if not asks_a_service(reward)),
        tasks={name: _without_judges(task) for name, task in spec.tasks.items()},
    )


def _solved(tasks: Mapping[str, Task], played: Sequence[Trajectory]) -> dict[str, bool | str]:
    """Return for each problem id whether the problem was solved.

    If the episode of a problem could not be scored, the value is the reason.
    """
    outcomes = dict[str, bool | str]()
    for name, task in tasks.items():
        own = [trajectory for trajectory in played if trajectory.problem.task == name]
        rewards = {r: weight for r, weight in task.rewards.items() if not asks_a_service(r)}
        if not own or task.goal not in (reward.name for reward in rewards):
            continue
        scores = score_here(own, rewards, injection.name(task.agent))
        for trajectory, scored in zip(own, scores, strict=True):
            outcomes[trajectory.problem.id] = (
                scored.reward.reason
                if isinstance(scored.reward, Unscored)
                else reaches(scored.rewards[task.goal], 1.0)
            )
    return outcomes


def _report(
    experiment: str, oracle: Mapping[str, bool | str], idle: Mapping[str, bool | str]
) -> list[str]:
    report = []
    for who, outcomes in (("The oracle", oracle), ("An idle policy", idle)):
        right = sum(outcome is True for outcome in outcomes.values())
        report.append(f"{who} solves {right} of {counted(len(outcomes), 'sampled problem')}.")
    command = f"agentfly play {experiment} --policy oracle --split train --problem"
    wrong = [
        f"The oracle does not solve {name!r}{f' ({outcome})' if outcome else ''}: {command} {name}"
        for name, outcome in oracle.items()
        if outcome is not True
    ]
    wrong += [
        f"An idle policy solves {name!r}: check the reward."
        for name, outcome in idle.items()
        if outcome is True
    ]
    for line in wrong[:SHOWN]:
        logger.warning(line)
    return report + wrong[:SHOWN]
