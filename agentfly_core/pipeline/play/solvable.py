"""Check that the problems of a dataset can be solved, and that wrong answers earn less than right
ones.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from agentfly_core.authoring.event_loop import HeldCalls, run, without_held_calls
from agentfly_core.authoring.reward import Grade, Reward
from agentfly_core.authoring.scoring import AT_ONCE
from agentfly_core.config.episodes import SPLITS
from agentfly_core.config.tasks import SINGLE
from agentfly_core.experiment.experiment import Experiment
from agentfly_core.experiment.keys import StageKeys
from agentfly_core.experiment.run_layout import undamaged
from agentfly_core.pipeline import inputs
from agentfly_core.pipeline.play.trial import evenly, scores_answers, trials
from agentfly_core.records.dataset import missing_facts, split
from agentfly_core.records.speakers import reaches
from agentfly_core.records.trajectory import Ending, Examples, Problem, Score, Trajectory, Unscored
from agentfly_core.store.artifact import Artifact
from agentfly_core.system.formats.text import clip, counted, words_of

WRONG = 64
"""The maximum number of problems whose wrong example answers are scored to check a reward."""
SHOWN = 5
logger = logging.getLogger(__name__)


def prepare(experiment: Experiment) -> Artifact:
    """Return the dataset of an experiment, after a check of its problems. Make the dataset if it is
    not in the store.

    `experiment.store.open(prepare(experiment))` is a folder with `train.parquet`,
    `validation.parquet` and `test.parquet`. Raises ValueError if the data cannot be used, or if too
    many problems cannot be solved.
    """
    data = inputs.dataset(experiment)
    check(experiment, data)
    return data


def check(experiment: Experiment, data: Artifact) -> list[str]:
    """Check the problems of a dataset, and return a report with one sentence for each check.

    The report lists the keys of `Problem.facts` that are missing in a few problems only. A reward
    that has example answers and needs no environment is checked with right and wrong answers. If
    `warm_start.demonstrations` is a function, two policies play some training problems to check
    the environments and all other rewards. The oracle policy is the function in
    `warm_start.demonstrations`, without deliberate mistakes. The idle policy replies with empty
    texts. Rewards that use a service are not checked. The report is cached.

    Raises ValueError if more than `data.tolerate_bad_rows` problems cannot be solved. A problem
    cannot be solved if its right answer does not earn the full reward. Raises GateClosed if
    the oracle plays problems, but the rewards can score none of them.
    """
    store, uri = experiment.store, StageKeys(experiment.settings).solvable(data)
    if stored := undamaged(store, uri, "The problems are checked again."):
        return [*stored["report"]]
    folder = store.open(data)
    splits = {name: split(folder, name) for name in SPLITS}
    problems = [problem for name in SPLITS for problem in splits[name]]
    report = [f"{line}." for line in missing_facts(splits)]
    for line in report:
        logger.warning(line)
    unsolvable = dict[str, str]()
    for name, task in experiment.tasks.items():
        own = [problem for problem in problems if problem.task == name]
        for reward in task.rewards:
            if reward.examples is not None and scores_answers(reward):
                checked = partial(_checked, reward, reward.examples, own)
                lines, wrong = without_held_calls(checked)
                prefix = "" if name == SINGLE else f"{name}: "
                report += [f"{prefix}{line}" for line in lines]
                unsolvable |= wrong
    if unsolvable:
        prompts = {problem.id: problem.prompt for problem in problems}
        most = experiment.settings.data.tolerate_bad_rows
        report.append(_tolerated(unsolvable, prompts, most))
    report += trials(experiment, splits["train"])
    store.write_json(uri, {"report": [*report]})
    return report


def _checked(
    reward: Reward,
    examples: Callable[[Problem], Examples],
    problems: Sequence[Problem],
    held: HeldCalls,
) -> tuple[list[str], dict[str, str]]:
    """Check a reward with right and wrong example answers.

    Returns the lines of the report, and the problems that cannot be solved. The second value maps
    each problem id to the reason why the right answer does not earn the full reward.
    """
    pairs, unsolvable = _readable(examples, problems)
    right = [(problem, text) for problem, answers in pairs for text in answers.right[:2]]
    for (problem, text), score in zip(right, run(_scores(reward, right, held)), strict=True):
        if fault := _too_little(reward, text, score):
            unsolvable[problem.id] = fault
    sample = evenly(pairs, WRONG)
    wrong = [(problem, text) for problem, answers in sample for text in answers.wrong]
    mistaken = _mistaken(reward, wrong, held)
    judged = {problem.id for problem, _ in right} | unsolvable.keys()
    if not judged and not wrong:
        return [], unsolvable
    without = len(problems) - len(judged)
    line = (
        f"{reward.name}: the right answer earns 1 in {len(judged - unsolvable.keys())} of "
        f"{counted(len(judged), 'problem')}{f' ({without} have none)' if without else ''}; wrong "
        f"answers earn less in {len(wrong) - len(mistaken)} of {len(wrong)} cases on "
        f"{counted(len(sample), 'sampled problem')}."
    )
    return [line, *mistaken[:SHOWN]], unsolvable


def _readable(
    examples: Callable[[Problem], Examples], problems: Sequence[Problem]
) -> tuple[list[tuple[Problem, Examples]], dict[str, str]]:
    """Return the problems with their example answers, and the errors that `examples` raised.

    The second value maps problem ids to error messages.
    """
    pairs, errors = list[tuple[Problem, Examples]](), dict[str, str]()
    for problem in problems:
        try:
            pairs.append((problem, examples(problem)))
        except (KeyError, SyntaxError, TypeError, ValueError) as error:
            errors[problem.id] = words_of(error)
    return pairs, errors


def _mistaken(reward: Reward, wrong: Sequence[tuple[Problem, str]], held: HeldCalls) -> list[str]:
    """Return a sentence for each wrong answer that earns the full reward.

    The first SHOWN sentences are also logged as warnings.
    """
    lines = [
        f"{reward.name}: the wrong answer {clip(text, 80)!r} to the problem {problem.id!r} earns "
        f"{score.value:g}, expected less than 1."
        for (problem, text), score in zip(wrong, run(_scores(reward, wrong, held)), strict=True)
        if isinstance(score, Score) and reaches(score.value, 1.0)
    ]
    for line in lines[:SHOWN]:
        logger.warning(line)
    return lines


async def _scores(
    reward: Reward, answers: Sequence[tuple[Problem, str]], held: HeldCalls
) -> list[Grade]:
    seats = asyncio.Semaphore(AT_ONCE)

    async def scored(problem: Problem, text: str) -> Grade:
        async with seats:
            return await reward.of_record(_answered(problem, text), held)

    return await asyncio.gather(*(scored(*answer) for answer in answers))


def _answered(problem: Problem, text: str) -> Trajectory:
    """Make an episode without turns that ended with the answer `text`."""
    return Trajectory(
        id=problem.id,
        episode=problem.id,
        problem=problem,
        group=problem.id,
        chain=0,
        agent="example",
        role="evaluation",
        turns=(),
        closing=(),
        ending=Ending.NO_TOOL_CALLS,
        error=None,
        observed={},
        seed=0,
        answered=text,
    )


def _too_little(reward: Reward, text: str, score: Grade) -> str | None:
    answer = f"the right answer {clip(text, 80)!r}"
    if isinstance(score, Unscored):
        return f"{answer} is unscored: {score.reason}"
    if reaches(score.value, 1.0):
        return None
    return f"{answer} earns {score.value:g} from the reward {reward.name}, expected 1"


def _tolerated(unsolvable: Mapping[str, str], prompts: Mapping[str, str], most: int) -> str:
    """Return the line of the report about problems that cannot be solved.

    Raises ValueError if there are more than `most` of these problems.
    """
    first = "; ".join(
        f"the problem {name!r} ({clip(prompts[name], 80)}): {unsolvable[name]}"
        for name in [*unsolvable][:SHOWN]
    )
    line = f"{counted(len(unsolvable), 'problem')} cannot be solved (tolerated: {most}): {first}."
    if len(unsolvable) > most:
        raise ValueError(
            f"{line} Correct the facts of these problems, remove these problems, or raise "
            "data.tolerate_bad_rows."
        )
    logger.warning(line)
    return line
