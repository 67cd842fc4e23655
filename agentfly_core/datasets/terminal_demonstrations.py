"""A policy that does with a shell what the problems of `datasets.terminal` ask for: what it types
follows from the prompt and from what earlier commands printed.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Generator, Mapping, Sequence

from agentfly_core.authoring.chat_template import Conversation
from agentfly_core.datasets.demonstrations import Script
from agentfly_core.datasets.mistakes import mistake, observed
from agentfly_core.datasets.names import ADJECTIVES, TRADES
from agentfly_core.datasets.terminal import ENDINGS, KEYS, LEVELS, PROMPTS
from agentfly_core.records.trajectory import Problem
from agentfly_core.templates.chatml import call_text

MISTAKES = ("stop early", "miscopy")
DONE = "Done."
Plan = Generator[str, str, str]
"""Yields commands that look, and is sent what they print; returns the one that does it."""
_COPIED: Sequence[Sequence[str]] = (
    [word.lower() for word in ADJECTIVES],
    [word.lower() for word in TRADES],
    ENDINGS,
    LEVELS,
    KEYS,
    ("$2", "$3", "$4"),
)
"""What a command takes from the prompt or a listing, by kind."""


def _rename(asked: Mapping[str, str]) -> Plan:
    listed = yield "ls"
    old, new = asked["old"], asked["new"]
    moved = [name for name in listed.split() if name.startswith(f"{old}.")]
    return "; ".join(f"mv {name} {new}.{_ending(name)}" for name in moved)


def _lines(asked: Mapping[str, str]) -> Plan:
    listed = yield "ls"
    return f"wc -l < {_ending_in(asked['ending'], listed)[0]} > count.txt"


def _total(asked: Mapping[str, str]) -> Plan:
    listed = yield "ls"
    table = _ending_in("csv", listed)[0]
    header = yield f"head -1 {table}"
    column = header.split(",").index(asked["column"]) + 1
    return f"awk -F, '{{s += ${column}}} END {{print s}}' {table} > total.txt"


def _largest(asked: Mapping[str, str]) -> Plan:
    listed = yield "ls -S"
    return f"echo {listed.split()[0]} > largest.txt"


def _extract(asked: Mapping[str, str]) -> Plan:
    listed = yield "ls"
    return f"grep {asked['level']} {_ending_in('log', listed)[0]} > found.txt"


def _config(asked: Mapping[str, str]) -> Plan:
    key = asked["key"]
    listed = yield f"grep -l {key} *"
    return f"sed -i s/{key}=.*/{key}={asked['value']}/ {listed.split()[0]}"


def _sort(asked: Mapping[str, str]) -> Plan:
    listed = yield "ls"
    return f"sort -u {_ending_in('txt', listed)[0]} > sorted.md"


def _move(asked: Mapping[str, str]) -> Plan:
    listed = yield "ls"
    stem, folder = asked["stem"], asked["folder"]
    [name] = [name for name in listed.split() if name.startswith(f"{stem}.")]
    return f"mkdir {folder}; mv *.{_ending(name)} {folder}"


def _join(asked: Mapping[str, str]) -> Plan:
    listed = yield "ls"
    one, other = _ending_in("csv", listed)
    return f"join -t, {one} {other} > joined.txt"


def _tree(asked: Mapping[str, str]) -> Plan:
    paths = (yield "cat plan.txt").split()
    folders = [path.partition("/")[0] for path in paths]
    return f"mkdir {' '.join(folders)}; touch {' '.join(paths)}"


PLANS: Mapping[str, Callable[[Mapping[str, str]], Plan]] = {
    "rename": _rename,
    "lines": _lines,
    "total": _total,
    "largest": _largest,
    "extract": _extract,
    "config": _config,
    "sort": _sort,
    "move": _move,
    "join": _join,
    "tree": _tree,
}


def terminal(problems: Sequence[Problem], seed: int, spoilt: float = 0.3) -> Script:
    """Look at the folder, then do in one command what is asked for; then say so.

    A share `spoilt` of the episodes does nothing after it looked, or takes a wrong name, ending,
    key or column over into the command.
    """

    async def policy(conversation: Conversation) -> str:
        return _said(conversation, mistake(conversation, seed, spoilt, MISTAKES))

    return policy


def understood(prompt: str) -> tuple[str, dict[str, str]]:
    """The family of a prompt and what it names: `("rename", {"old": "amber-mills", "new": ...})`;
    raises ValueError for one of no family.
    """
    for family, text in PROMPTS.items():
        pattern = re.sub(r"\\{(\w+)\\}", r"(?P<\1>[\\w-]+)", re.escape(text))
        if found := re.fullmatch(pattern, prompt):
            return family, found.groupdict()
    raise ValueError(f"Got {prompt!r}, expected a prompt of datasets.terminal.")


def _said(conversation: Conversation, wrong: str) -> str:
    """The next command, or that it is done; also where what was printed is not what it expects."""
    family, asked = understood(conversation.problem.prompt)
    plan, printed = PLANS[family](asked), iter(observed(conversation))
    try:
        command = next(plan)
        for text in printed:
            command = plan.send(text)
    except StopIteration as ended:
        if wrong == "stop early" or any(True for _ in printed):
            return DONE
        command = ended.value
        if wrong == "miscopy":
            command = _miscopied(random.Random(conversation.seed), command)
    except (LookupError, ValueError):
        return DONE
    return call_text("shell", command=command)


def _miscopied(draw: random.Random, command: str) -> str:
    """The command with another word in the place of one that it takes from elsewhere."""
    parts = re.split(r"(\$?\w+)", command)
    place, known = draw.choice(
        [(n, kind) for n, part in enumerate(parts) for kind in _COPIED if part in kind]
    )
    parts[place] = draw.choice([word for word in known if word != parts[place]])
    return "".join(parts)


def _ending(name: str) -> str:
    return name.rpartition(".")[2]


def _ending_in(ending: str, listed: str) -> list[str]:
    """The names with an ending in what `ls` printed."""
    return [name for name in listed.split() if _ending(name) == ending]
