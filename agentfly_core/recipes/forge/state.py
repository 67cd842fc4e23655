"""The memory of a run: functions that a model wrote as tools, and the results of their trials."""

from collections.abc import Callable, Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from agentfly_core import Scored, Trajectory, Unscored
from agentfly_core.recipes.forge.actions import TERMINATE
from agentfly_core.recipes.forge.function_sets import FUNCTIONS, Functions

FILE = "forge.json"
FAILURES = 5
"""The largest number of rejected trials in the prompt for the next proposal."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True)


class TrainingAnswer(_Part):
    """A training prompt, the solver's answer, and whether the answer was right."""

    problem: str
    answer: str
    right: bool


class Trial(_Part):
    """The result of a trial (a step that tests a set of functions).

    `train` is the share of right answers to the problems with the role "train". `validation` is the
    share of right answers to the problems with the role "validation". `accepted` is True if the
    functions became the best functions.
    """

    functions: Functions
    train: float
    validation: float
    accepted: bool


class State(_Part):
    """The memory of a run after a step: functions for the solver, and the results of their trials.

    `best` has the best functions so far. With these functions, the solver gave the answers in
    `results` to the training problems. `trying` has the functions that the next step tests, or
    None if the next step proposes functions. `trials` has the results of all trials so far, in
    order. `finished` is True after a proposal without changes, which ends the search.
    """

    best: Functions = ()
    results: tuple[TrainingAnswer, ...] = ()
    trying: Functions | None = ()
    trials: tuple[Trial, ...] = ()
    finished: bool = False

    @classmethod
    def read(cls, folder: Path) -> "State":
        """Read the state from a memory folder; an empty folder gives a new state."""
        file = folder / FILE
        return cls.model_validate_json(file.read_bytes()) if file.exists() else cls()

    @property
    def rejected(self) -> int:
        """The number of trials (tests of functions) since the last accepted trial."""
        accepted = [trial.accepted for trial in self.trials]
        return accepted[::-1].index(True) if True in accepted else len(accepted)

    @property
    def failures(self) -> list[Trial]:
        """The best rejected trials (tests of functions) since the last accepted trial.

        At most FAILURES trials are returned. They are sorted by the share of right answers to
        training problems (`train`), the best trial last.
        """
        last = self.trials[len(self.trials) - self.rejected :]
        return sorted(last, key=lambda trial: trial.train)[-FAILURES:]


def remember(
    before: Path,
    trajectories: Sequence[Trajectory],
    scores: Sequence[Scored],
    seed: int,
    folder: Path,
) -> None:
    """Write the run's memory (a State) to `folder` after a step.

    The folder `before` has the memory before the step.

    After a proposal (a step that proposes functions), the memory has the functions for the next
    trial (a step that tests them). After a trial, the tested functions become the best functions if
    their share of right answers to validation problems is the highest so far. Otherwise the tested
    functions are rejected. The next proposal starts from the best functions.
    """
    _remember(before, trajectories, scores, folder, lambda new, best: new > best)


def remember_all(
    before: Path,
    trajectories: Sequence[Trajectory],
    scores: Sequence[Scored],
    seed: int,
    folder: Path,
) -> None:
    """Write the run's memory like `remember`, but always accept the functions of a trial."""
    _remember(before, trajectories, scores, folder, lambda new, best: True)


def _remember(
    before: Path,
    trajectories: Sequence[Trajectory],
    scores: Sequence[Scored],
    folder: Path,
    accepts: Callable[[float, float], bool],
) -> None:
    state = State.read(before)
    pairs = [*zip(trajectories, scores, strict=True)]
    if state.finished:
        new = state
    elif state.trying is None:
        new = _proposed(state, trajectories)
    else:
        new = _judged(state, state.trying, pairs, accepts)
    (folder / FILE).write_text(new.model_dump_json(indent=1))


def _proposed(state: State, trajectories: Sequence[Trajectory]) -> State:
    answers = [
        one.answered
        for one in trajectories
        if one.problem.facts["role"] == "optimize" and one.answered
    ]
    if not answers:  # the episode failed: the next step proposes again
        return state
    if answers[0] == TERMINATE:
        return state.model_copy(update={"finished": True})
    return state.model_copy(update={"trying": FUNCTIONS.validate_json(answers[0])})


def _judged(
    state: State,
    tried: Functions,
    pairs: Sequence[tuple[Trajectory, Scored]],
    accepts: Callable[[float, float], bool],
) -> State:
    results: dict[str, dict[str, TrainingAnswer]] = {"train": {}, "validation": {}}
    for one, score in pairs:
        role = one.problem.facts["role"]
        if role in results and (one.answered is not None or one.episode not in results[role]):
            # an answer without a score counts as wrong
            right = not isinstance(score.reward, Unscored) and score.reward >= 1
            result = TrainingAnswer(
                problem=one.problem.prompt, answer=one.answered or "", right=right
            )
            results[role][one.episode] = result
    train, validation = (_share([*results[role].values()]) for role in ("train", "validation"))
    best = max((one.validation for one in state.trials if one.accepted), default=-1.0)
    accepted = accepts(validation, best)
    trial = Trial(functions=tried, train=train, validation=validation, accepted=accepted)
    new = {"best": tried, "results": tuple(results["train"].values())} if accepted else {}
    changed = {"trying": None, "trials": (*state.trials, trial), **new}
    return state.model_copy(update=changed)


def _share(results: Sequence[TrainingAnswer]) -> float:
    return sum(result.right for result in results) / max(1, len(results))
