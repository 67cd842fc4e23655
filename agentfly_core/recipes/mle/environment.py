"""The environment of a competition. Code runs in a sandbox without the targets of the test rows."""

import asyncio
import json
from collections.abc import Mapping
from functools import partial

from agentfly_core import Environment, Problem, ToolError, digest
from agentfly_core.recipes.mle.competitions import SAMPLE, Competition, human_rank
from agentfly_core.recipes.mle.folders import competition_of
from agentfly_core.sandbox import ExecResult, Limits, Status, feedback, run

SUBMISSION = "submission.csv"
MODULES = (
    *("pandas", "sklearn.ensemble", "sklearn.feature_extraction.text", "sklearn.impute"),
    *("sklearn.linear_model", "sklearn.model_selection", "sklearn.naive_bayes", "sklearn.svm"),
    *("sklearn.neighbors", "sklearn.pipeline", "sklearn.preprocessing", "sklearn.tree"),
)
"""The modules that the sandbox's fork server (the process that starts all programs) imports once.

Each program with the model's code can then import these modules without delay.
"""
LIMITS = Limits(wall=60.0, cpu=30, memory=1024 * 2**20, captured=64 * 1024)
"""The limits of one execution of code in the sandbox."""
MOST_CACHED = 64 * 2**20
"""The largest number of bytes in the cache of executions."""
NOT_CACHED = (Status.TIMEOUT, Status.KILLED, Status.UNAVAILABLE)

Key = tuple[str, str]
"""The cache key of an execution: a digest of the competition, and the text of the code."""

_running: dict[tuple[asyncio.AbstractEventLoop, Key], asyncio.Task[ExecResult]] = {}
_executions: dict[Key, ExecResult] = {}
"""The cache of finished executions of all episodes in this process, from old to new."""


class MLE(Environment):
    """A competition, and the results of the model's submissions.

    The facts of a problem describe the competition (see `folders.competition_of`):

        {"kind": "linear", "seed": 3, "formula": "code", "leaderboard": {"forest": 0.61, ...}}

    Each submission is scored on the public and on the private rows of the test set. The private
    score gives a relative place on the leaderboard, from 0 (last) to 1 (best); see `human_rank`.
    `rank` is the best place so far. It is 0 until a submission is better than the sample
    submission. `public` is the best public score, or None before the first submission. Methods
    raise ToolError for mistakes of the model, such as code that fails.
    """

    async def reset(self, problem: Problem) -> None:
        """Load the competition.

        The facts of the problem describe the competition. Raises KeyError if a fact is missing or
        the fact `kind` is unknown. Raises ValueError if the fact `seed` is negative, or if the fact
        `folder` is a folder without a competition.
        """
        facts = problem.facts
        self.task: Competition = await asyncio.to_thread(competition_of, facts)
        self.board: Mapping[str, float] = facts["leaderboard"]
        self.formula = facts.get("formula", "code")
        self._name = digest([facts.get("kind"), facts.get("seed"), facts.get("folder")])
        _, self.floor = self.task.scores(self.task.files[SAMPLE])
        self.ranks: dict[str, float] = dict.fromkeys(("code", "paper"), 0.0)
        self.public: float | None = None
        self.executions = 0

    @property
    def rank(self) -> float:
        return self.ranks[self.formula]

    async def run(self, code: str) -> tuple[str, bytes]:
        """Run code in the sandbox, in a folder with the competition's files.

        Returns the printed text and the file `submission.csv`. Raises ToolError if the code fails
        or does not write this file. Raises ServiceFailure if the sandbox fails.
        """
        result = await _executed((self._name, code), self.task)
        printed = feedback(result, LIMITS)
        if SUBMISSION not in result.files:
            raise ToolError(f"{printed}\nThe code wrote no plain file {SUBMISSION}.".strip())
        return printed, result.files[SUBMISSION]

    def submit(self, submission: bytes) -> tuple[float, float]:
        """Grade a submission.

        Returns the score of the submission on the public rows, and how much the submission
        increased `rank`, the best place on the leaderboard so far (0 is last, 1 is best).
        """
        public, private = self.task.scores(submission)
        before, metric = self.rank, self.task.metric
        self.executions += 1
        if metric.better(private, self.floor):
            for formula in ("code", "paper"):
                rank = human_rank(self.board.values(), private, metric, formula)
                self.ranks[formula] = max(self.ranks[formula], rank)
        if self.public is None or metric.better(public, self.public):
            self.public = public
        return public, self.rank - before

    async def snapshot(self) -> bytes:
        return json.dumps([self.ranks, self.public, self.executions]).encode()

    async def restore(self, snapshot: bytes) -> None:
        self.ranks, self.public, self.executions = json.loads(snapshot)


async def _executed(key: Key, task: Competition) -> ExecResult:
    """Execute code in the sandbox, or return the cached result of an earlier execution.

    `key` contains a digest of the competition and the text of the code. If an execution with the
    same key is still running, wait for the result of this execution.
    """
    if key in _executions:
        return _executions[key]
    at = asyncio.get_running_loop(), key
    if at not in _running:
        execution = run(key[1], task.files, "", LIMITS, [SUBMISSION], MODULES)
        _running[at] = at[0].create_task(execution)
        _running[at].add_done_callback(partial(_ended, at))
    # shielded, because other episodes may await the same execution
    return await asyncio.shield(_running[at])


def _ended(at: tuple[asyncio.AbstractEventLoop, Key], task: asyncio.Task[ExecResult]) -> None:
    """Cache the result of a finished execution.

    Timeouts, killed code and failures of the sandbox are not cached, because they may depend on the
    load of the machine.
    """
    del _running[at]
    if task.cancelled() or task.exception() or task.result().status in NOT_CACHED:
        return
    _executions[at[1]] = task.result()
    while sum(map(_size, _executions.items())) > MOST_CACHED:
        del _executions[next(iter(_executions))]


def _size(execution: tuple[Key, ExecResult]) -> int:
    (_, code), result = execution
    printed = len(result.stdout) + len(result.stderr)
    return len(code) + printed + len(result.files.get(SUBMISSION, b""))
