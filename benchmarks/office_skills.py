"""Skills of a simulated policy for the questions of the recipe tptu."""

import json
import re
from typing import Any

from agentfly_core.recipes.tptu.agents import FINISH, NEXT
from agentfly_core.testing import Visible

TABLES = "Tables: people(name, company), companies(name, city), orders(number, person, amount)."
"""A text that describes the tables. The agents of the recipe pass it to the policy."""
_SQL = {
    r"amount of order (\d+)": "SELECT amount FROM orders WHERE number = {}",
    r"number of orders of (.+)": "SELECT count(*) FROM orders WHERE person = '{}'",
    r"spending of (.+)": "SELECT sum(amount) FROM orders WHERE person = '{}'",
    r"largest order of (.+)": "SELECT max(amount) FROM orders WHERE person = '{}'",
    r"staff of (.+)": "SELECT count(*) FROM people WHERE company = '{}'",
    r"revenue of (.+)": "SELECT sum(o.amount) FROM people AS p JOIN orders AS o "
    "ON o.person = p.name WHERE p.company = '{}'",
}
_SIGNS = {"sum": "+", "difference": "-", "product": "*"}
_BRANCH = re.compile(
    r"If the (.+) is above (-?\d+), what is the (.+), otherwise what is the (.+)\?"
)


def plans(visible: Visible) -> str | None:
    """Reply with the plan for a question, or only with the next sub-task if the prompt requests it.

    For a question with two branches, the chosen branch is random until the result that decides is
    visible.
    """
    if visible.speaker == "worker" or FINISH in visible.texts[-1]:
        return None
    question = next(text for text in visible.texts if text.startswith(("What is", "If the")))
    results = [match[1] for text in visible.texts if (match := re.match(r"Result \d+: (.*)", text))]
    plan = _plan(question, results, visible)
    if NEXT in visible.texts[-1]:
        plan = plan[len(results) : len(results) + 1]
    return json.dumps(plan)


def writes_sql(visible: Visible) -> str | None:
    """Reply with SQL for a sub-task, if the conversation describes the tool and the tables."""
    subtask = _subtask(visible, "SQL")
    if not subtask or "orders(" not in visible.texts[0]:
        return None
    matches = ((re.fullmatch(pattern, subtask), sql) for pattern, sql in _SQL.items())
    return next((sql.format(match[1]) for match, sql in matches if match), None)


def writes_python(visible: Visible) -> str | None:
    """Reply with Python code that calculates with earlier results."""
    operation, _, inputs = (_subtask(visible, "Python") or "").partition(" of ")
    if not inputs:
        return None
    if operation == "square":
        return f"print({inputs} ** 2)"
    return f"print({inputs.replace(' and ', f' {_SIGNS[operation]} ')})"


def answers(visible: Visible) -> str | None:
    """Reply with the last result, if the prompt requests the answer to the question."""
    result, marker, _ = visible.texts[-1].partition(f"\n{FINISH}")
    return re.split(r"[.:] ", result.splitlines()[-1])[-1] if marker else None


SKILLS = (plans, writes_sql, writes_python, answers)


def _plan(question: str, results: list[str], visible: Visible) -> list[dict[str, Any]]:
    if branch := _BRANCH.fullmatch(question):
        first, limit, above, otherwise = branch.groups()
        is_above = int(results[0]) > int(limit) if results else visible.draw.random() < 0.5
        return [_lookup(visible, first), _lookup(visible, above if is_above else otherwise, 1)]
    text = question.removeprefix("What is the ").removesuffix("?")
    operation, _, listed = text.partition(" of the ")
    if not listed:
        return [_lookup(visible, text)]
    parts = re.split(r", the | and the ", listed)
    places = [f"{{{number}}}" for number in range(1, len(parts) + 1)]
    subtask, numbers = f"{operation} of {' and '.join(places)}", [*range(1, len(parts) + 1)]
    tool = _tool(visible, "Python")
    last = {"tool": tool, "subtask": subtask, "inputs": places, "depends_on": numbers}
    return [*(_lookup(visible, part) for part in parts), last]


def _lookup(visible: Visible, subtask: str, *depends_on: int) -> dict[str, Any]:
    tool = _tool(visible, "SQL")
    return {"tool": tool, "subtask": subtask, "inputs": [], "depends_on": [*depends_on]}


def _tool(visible: Visible, word: str) -> str:
    """Return the first tool in the prompt with this word in its description, or "none"."""
    tools = re.findall(r"^- (\w+): (.*)$", visible.texts[0], re.MULTILINE)
    return next((name for name, description in tools if word in description), "none")


def _subtask(visible: Visible, word: str) -> str | None:
    """Return the sub-task in a prompt of the worker.

    Returns None if the description of the sub-task's tool does not contain this word.
    """
    match = re.match(r"Tool: (.*)\nSub-task: (.*)", visible.texts[-1])
    return match[2] if match and word in match[1] else None
