"""Demonstrations for `recipes.terminal`, made from the prompt and the output of commands."""

import random
import re
from collections.abc import Callable, Generator, Mapping, Sequence
from functools import partial

from agentfly_core import Conversation, Problem, call_text
from agentfly_core.datasets.names import ADJECTIVES, TRADES
from agentfly_core.datasets.players import Demonstrator, filled, mistake, observed
from agentfly_core.recipes.terminal.dataset import ENDINGS, KEYS, LEVELS, PROMPTS

MISTAKES = ("stop early", "miscopy")
DONE = "Done."
Plan = Generator[str, str, str]
"""A generator that yields shell commands that read the problem's folder.

After each command, the generator receives the output. It returns the command that solves the
problem.
"""
_COPIED: Sequence[Sequence[str]] = (
    ADJECTIVES.lower().split(),
    TRADES.lower().split(),
    ENDINGS,
    LEVELS,
    KEYS,
    ("$2", "$3", "$4"),
)
"""Words that commands copy from the prompt or from output, grouped by kind, such as endings."""


def _first(look: str, ending: str, command: str, fields: Mapping[str, str]) -> Plan:
    """A plan (generator) that returns a command for one file of the folder.

    The plan first yields the command `look`, such as "ls", and receives the output of this command.
    It then returns `command` with a file name from the output instead of `{file}`. The file name is
    the first name with the ending `ending`, or the first of all names if `ending` is empty.
    """
    listed = yield look.format(**fields)
    files = _ending_in(ending.format(**fields), listed) if ending else listed.split()
    return command.format(file=files[0], **fields)


def _rename(fields: Mapping[str, str]) -> Plan:
    listed = yield "ls"
    old, new = fields["old"], fields["new"]
    moved = [name for name in listed.split() if name.startswith(f"{old}.")]
    return "; ".join(f"mv {name} {new}.{_ending(name)}" for name in moved)


def _total(fields: Mapping[str, str]) -> Plan:
    listed = yield "ls"
    table = _ending_in("csv", listed)[0]
    header = yield f"head -1 {table}"
    column = header.split(",").index(fields["column"]) + 1
    return f"awk -F, '{{s += ${column}}} END {{print s}}' {table} > total.txt"


def _move(fields: Mapping[str, str]) -> Plan:
    listed = yield "ls"
    stem, folder = fields["stem"], fields["folder"]
    [name] = [name for name in listed.split() if name.startswith(f"{stem}.")]
    return f"mkdir {folder}; mv *.{_ending(name)} {folder}"


def _join(fields: Mapping[str, str]) -> Plan:
    listed = yield "ls"
    one, other = _ending_in("csv", listed)
    return f"join -t, {one} {other} > joined.txt"


def _tree(fields: Mapping[str, str]) -> Plan:
    paths = (yield "cat plan.txt").split()
    folders = [path.partition("/")[0] for path in paths]
    return f"mkdir {' '.join(folders)}; touch {' '.join(paths)}"


PLANS: Mapping[str, Callable[[Mapping[str, str]], Plan]] = {
    "rename": _rename,
    "lines": partial(_first, "ls", "{ending}", "wc -l < {file} > count.txt"),
    "total": _total,
    "largest": partial(_first, "ls -S", "", "echo {file} > largest.txt"),
    "extract": partial(_first, "ls", "log", "grep {level} {file} > found.txt"),
    "config": partial(_first, "grep -l {key} *", "", "sed -i s/{key}=.*/{key}={value}/ {file}"),
    "sort": partial(_first, "ls", "txt", "sort -u {file} > sorted.md"),
    "move": _move,
    "join": _join,
    "tree": _tree,
}


def terminal(problems: Sequence[Problem], seed: int, spoilt: float = 0.3) -> Demonstrator:
    """Return a policy that reads the folder, runs the command that solves the problem, and
    finishes.

    `spoilt` is the share of episodes with a mistake: the policy skips this command, or a name,
    an ending, a level, a key or a column in the command is wrong.
    """

    async def policy(conversation: Conversation) -> str:
        wrong = mistake(conversation, seed, spoilt, MISTAKES)
        family, fields = filled(conversation.problem.prompt, PROMPTS, "recipes.terminal")
        plan, printed = PLANS[family](fields), iter(observed(conversation))
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
        except (LookupError, ValueError):  # unexpected output
            return DONE
        return call_text("shell", command=command)

    return policy


def _miscopied(draw: random.Random, command: str) -> str:
    """Replace one word of a command by a different word of the same kind.

    _COPIED has the kinds of words, such as endings of file names.
    """
    parts = re.split(r"(\$?\w+)", command)
    place, words = draw.choice(
        [(n, kind) for n, part in enumerate(parts) for kind in _COPIED if part in kind]
    )
    parts[place] = draw.choice([word for word in words if word != parts[place]])
    return "".join(parts)


def _ending(name: str) -> str:
    return name.rpartition(".")[2]


def _ending_in(ending: str, listed: str) -> list[str]:
    return [name for name in listed.split() if _ending(name) == ending]
