"""Rewards for plans, and for the SQL that a model writes for the sub-tasks of a plan."""

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
    """The planned sub-tasks of an episode, and the inputs of the tools.

    - `plan`: the sub-tasks of the readable plans (plans that can be parsed). The sequential agent
      writes several plans, and executes only the first sub-task of each plan. In this case, `plan`
      has only the first sub-tasks.
    - `readable`: the number of readable plans divided by the number of all plans
    - `inputs`: the tool inputs, which the speaker "worker" wrote
    """

    plan: Sequence[SubTask]
    readable: float
    inputs: Sequence[str]


@reward
async def planning(team: Team) -> Score:
    """1 if the plan has the sub-tasks of the right plan (gold plan) in the same order, else 0.

    If the model writes several plans in an episode, the plan is collected from all of them; see
    PlannedEpisode. If one of these plans cannot be parsed, the result is 0. The partial scores are:

    - `format`: 1 if each plan of the episode can be parsed, else 0
    - `order_lcs`: the length of the longest common subsequence of plan and gold plan, divided by
      the length of the longer plan
    - `pairs`: the F1 score of the plan's sub-tasks, compared with the sub-tasks of the gold plan in
      any order
    - `over_use`: the share of sub-tasks in the plan that are not in the gold plan
    - `calls`: the number of model calls, that is, of replies in the episode
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
    """The share of SQL sub-tasks in the right plan (gold plan) for which the model's SQL is right.

    The model's SQL and the SQL of the gold plan run in three further databases. These databases
    have the entities of the question, but other values than the episode's database. The model's
    SQL is right if it returns the same rows as the SQL of the gold plan in each of the three
    databases. The order of the rows does not matter. `{1}` in a statement is replaced by the result
    of sub-task 1 in the same database.
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
    """Collect an episode's planned sub-tasks, and the tool inputs of the speaker "worker"."""
    plans, plan, readable = 0, list[SubTask](), 0
    planner = next(one for one in team.trajectories if one.speaker != "worker")
    for turn in planner.turns:
        # a reply to FINISH is the answer, not a plan
        if FINISH in turn.read[-1].content:
            continue
        plans += 1
        try:
            new = parsed(turn.reply.content, len(plan))
        except ValueError:
            continue
        # after NEXT, the agent executes the first sub-task only
        plan += new[:1] if NEXT in turn.read[-1].content else new
        readable += 1
    inputs = [turn.reply.content.strip() for one in team.of("worker") for turn in one.turns]
    return PlannedEpisode(plan, readable / max(1, plans), inputs)


def gold_of(problem: Problem) -> list[SubTask]:
    """Return the right plan of a problem (its fact `plan`), without the code of its sub-tasks."""
    fields = SubTask.model_fields
    return [SubTask(**{name: step[name] for name in fields}) for step in problem.facts["plan"]]


def same(step: SubTask, gold: SubTask) -> bool:
    """Whether a sub-task counts as equal to a sub-task of the gold plan.

    Equal sub-tasks have the same tool, and mention the same names and numbers. They also share most
    of their other words.
    """
    one, other = _words(step.subtask), _words(gold.subtask)
    if step.tool != gold.tool or not _mentions(gold) <= one or not _mentions(step) <= other:
        return False
    one, other = (words - _mentions(step) - _mentions(gold) - _SMALL for words in (one, other))
    # Dice's coefficient is above one half
    return not other or 4 * len(one & other) > len(one) + len(other)


def _words(text: str) -> set[str]:
    return {*_WORD.findall(text.lower())}


def _mentions(step: SubTask) -> set[str]:
    """Return the numbers and names in a sub-task.

    Names are capitalised words. The first word does not count as a name.
    """
    return {word.lower() for word in _MENTION.findall(step.subtask)}


def matched(plan: Sequence[SubTask], gold: Sequence[SubTask]) -> dict[int, int]:
    """Match the sub-tasks of a plan with equal sub-tasks of the gold plan.

    The result `{0: 2}` means that the first sub-task of `plan` is equal to the third of `gold`.
    Each sub-task is matched at most once, and sub-tasks without a match are left out.
    """
    pairs, left = dict[int, int](), dict(enumerate(gold))
    for number, step in enumerate(plan):
        place = next((place for place, other in left.items() if same(step, other)), None)
        if place is not None:
            pairs[number] = place
            del left[place]
    return pairs


def common(plan: Sequence[SubTask], gold: Sequence[SubTask]) -> int:
    """Return the length of the longest common subsequence of two plans."""
    row = [0] * (len(gold) + 1)
    for step in plan:
        before = row
        row = [0]
        for number, other in enumerate(gold):
            longer = before[number] + 1 if same(step, other) else 0
            row.append(max(longer, before[number + 1], row[-1]))
    return row[-1]


async def _rows(worlds: Sequence[str], statements: Sequence[tuple[int, str]]) -> list[list[Any]]:
    """Run SQL statements in the sandbox, in each of several databases.

    Returns a list for each database. The list has the rows of each statement, or None for a
    statement that failed.
    """
    if not statements:
        return [[] for _ in worlds]
    given = json.dumps([worlds, statements])
    # a program that was stopped leaves no file, so all of its statements count as wrong
    done = await run(_PROGRAM, {"given.json": given}, collect=["rows.json"])
    return json.loads(done.files.get("rows.json", b"null")) or [[None] * len(statements)] * len(
        worlds
    )


def _plain(rows: Sequence[Sequence[Any]] | None) -> list[list[str]] | None:
    """Convert the values of rows to texts, and sort the rows. Equal numbers give equal texts."""
    if rows is None:
        return None
    return sorted([f"{v:g}" if isinstance(v, int | float) else str(v) for v in row] for row in rows)
