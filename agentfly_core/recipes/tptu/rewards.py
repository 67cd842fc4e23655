"""Scores of plans: format, order, pairs, over-use, calls, and the accuracy of their SQL."""

import json
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from agentfly_core import Problem, Score, Team, reward
from agentfly_core.recipes.tptu.agents import FINISH, NEXT
from agentfly_core.recipes.tptu.dataset import results, script
from agentfly_core.recipes.tptu.plans import SubTask, parsed
from agentfly_core.sandbox import run

_MENTION = re.compile(r"\d+|(?<!^)\b[A-Z]\w*")
_WORD = re.compile(r"\w+")
_SMALL = {"a", "an", "and", "by", "for", "from", "in", "of", "on", "the", "to"}
_PROGRAM = """
import json, re, sqlite3, time
DENIED = sqlite3.SQLITE_ATTACH, sqlite3.SQLITE_DETACH, sqlite3.SQLITE_PRAGMA
with open("given.json") as file:
    scripts, statements = json.load(file)

def rows(opened, statement, values):
    statement = re.sub(r"[{](\\d+)[}]", lambda place: values.get(place[1], place[0]), statement)
    over = time.monotonic() + 1
    opened.set_progress_handler(lambda: time.monotonic() > over, 10000)
    try:
        fetched = opened.execute(statement).fetchmany(1000)
        json.dumps(fetched)
        return fetched
    except Exception:  # the statement may be anything
        return None

worlds = []
for script in scripts:
    opened = sqlite3.connect(":memory:", isolation_level=None)
    opened.executescript(script)
    opened.set_authorizer(lambda what, *_: what in DENIED)
    values, world = {}, []
    for number, statement in statements:
        world.append(rows(opened, statement, values))
        if world[-1]:
            values[str(number)] = str(world[-1][-1][0])
    worlds.append(world)
with open("rows.json", "w") as file:
    json.dump(worlds, file)
"""


class PlannedEpisode(NamedTuple):
    """The planning of an episode: sub-tasks, the share of readable plans, inputs by number."""

    plan: Sequence[SubTask]
    readable: float
    inputs: Sequence[str]


@reward
async def planning(team: Team) -> Score:
    """1 if the plan has the sub-tasks of the gold plan in its order, else 0.

    Parts: `format` is 1 if each plan is readable, `order_lcs` the longest common subsequence as a
    share of the longer plan, `pairs` the F1 of pairs of tool and sub-task, `over_use` the share of
    sub-tasks that the gold plan lacks, `calls` the replies of the model.
    """
    played, gold = played_by(team), gold_of(team.trajectories[0].problem)
    plan, pairs = played.plan, len(matched(played.plan, gold))
    longest = max(len(plan), len(gold))
    parts = {
        "format": float(played.readable == 1),
        "order_lcs": common(plan, gold) / longest,
        "pairs": 2 * pairs / (len(plan) + len(gold)),
        "over_use": (len(plan) - pairs) / max(1, len(plan)),
        "calls": float(sum(len(one.turns) for one in team.trajectories)),
    }
    right = played.readable == 1 and len(plan) == len(gold)
    return Score(float(right and all(map(same, plan, gold))), parts=parts)


@reward(timeout=120.0)
async def sql_accuracy(team: Team) -> Score:
    """The share of the gold plan's SQL whose sub-task got equal rows in three other databases.

    The databases have the entities of the question and other values. `{1}` in a statement is the
    result of sub-task 1 in the same database. Rows are compared without their order.
    """
    problem, played = team.trajectories[0].problem, played_by(team)
    pairs = matched(played.plan, gold_of(problem))
    wanted = [number for number, step in enumerate(problem.facts["plan"]) if step["tool"] == "sql"]
    places_of = {gold: number for number, gold in pairs.items() if number < len(played.inputs)}
    worlds = [script(seed, problem.facts["entities"]) for seed in problem.facts["worlds"]]
    numbers = sorted(places_of[gold] for gold in wanted if gold in places_of)
    rows = await _rows(worlds, [(number + 1, played.inputs[number]) for number in numbers])
    right = 0
    for gold in wanted:
        statement = problem.facts["plan"][gold]["code"]
        expected = [_plain(results(world, [statement])[0]) for world in worlds]
        place = numbers.index(places_of[gold]) if gold in places_of else None
        right += place is not None and [_plain(world[place]) for world in rows] == expected
    return Score(right / len(wanted))


def played_by(team: Team) -> PlannedEpisode:
    """The plan of an episode, and the inputs that the worker wrote for it."""
    plans, plan, readable = 0, list[SubTask](), 0
    planner = next(one for one in team.trajectories if one.speaker != "worker")
    for turn in planner.turns:
        # the reply is the answer, not a plan
        if FINISH in turn.read[-1].content:
            continue
        plans += 1
        try:
            new = parsed(turn.reply.content, len(plan))
        except ValueError:
            continue
        # after each result an agent carries out the first sub-task only
        plan += new[:1] if NEXT in turn.read[-1].content else new
        readable += 1
    inputs = [turn.reply.content.strip() for one in team.of("worker") for turn in one.turns]
    return PlannedEpisode(plan, readable / max(1, plans), inputs)


def gold_of(problem: Problem) -> list[SubTask]:
    """The gold plan of a problem."""
    fields = SubTask.model_fields
    return [SubTask(**{name: step[name] for name in fields}) for step in problem.facts["plan"]]


def same(step: SubTask, gold: SubTask) -> bool:
    """Whether a sub-task is the gold one: its tool, names and numbers, and most words."""
    one, other = _words(step.subtask), _words(gold.subtask)
    if step.tool != gold.tool or not _mentions(gold) <= one or not _mentions(step) <= other:
        return False
    one, other = (words - _mentions(step) - _mentions(gold) - _SMALL for words in (one, other))
    # Dice's coefficient is above one half
    return not other or 4 * len(one & other) > len(one) + len(other)


def _words(text: str) -> set[str]:
    return {*_WORD.findall(text.lower())}


def _mentions(step: SubTask) -> set[str]:
    """The numbers of a sub-task and its names: words with a capital, but not the first word."""
    return {word.lower() for word in _MENTION.findall(step.subtask)}


def matched(plan: Sequence[SubTask], gold: Sequence[SubTask]) -> dict[int, int]:
    """Pairs of equal sub-tasks by their numbers, each used once."""
    pairs, left = dict[int, int](), dict(enumerate(gold))
    for number, step in enumerate(plan):
        place = next((place for place, other in left.items() if same(step, other)), None)
        if place is not None:
            pairs[number] = place
            del left[place]
    return pairs


def common(plan: Sequence[SubTask], gold: Sequence[SubTask]) -> int:
    """The length of the longest common subsequence."""
    row = [0] * (len(gold) + 1)
    for step in plan:
        before = row
        row = [0]
        for number, other in enumerate(gold):
            longer = before[number] + 1 if same(step, other) else 0
            row.append(max(longer, before[number + 1], row[-1]))
    return row[-1]


async def _rows(worlds: Sequence[str], statements: Sequence[tuple[int, str]]) -> list[list[Any]]:
    """The rows of a model's statements in each database, or None; run in the sandbox."""
    if not statements:
        return [[] for _ in worlds]
    given = json.dumps([worlds, statements])
    # a stopped program leaves no file, and all its statements count as wrong
    done = await run(_PROGRAM, {"given.json": given}, collect=["rows.json"])
    return json.loads(done.files.get("rows.json", b"null")) or [[None] * len(statements)] * len(
        worlds
    )


def _plain(rows: Sequence[Sequence[Any]] | None) -> list[list[str]] | None:
    """Rows in an order of their own, with equal numbers written alike."""
    if rows is None:
        return None
    return sorted([f"{v:g}" if isinstance(v, int | float) else str(v) for v in row] for row in rows)
