"""Where two states of code differ: which function of which file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from agentfly_core.experiment.user_code.modules import Code, Module, ours
from agentfly_core.experiment.user_code.syntax import definitions

NOWHERE = "the order of its statements"


def differences(old: Code, new: Code, of_ours: bool) -> list[str]:
    """What differs in the author's modules that both name, or AgentFly's, and in what they import,
    a line each: `my_shop/prices.py: lookup, PRICES`, `numpy: 2.4.1 -> 2.4.2`, `prices.csv`.
    """
    lines = dict[str, None]()
    for name in sorted(name for name in old.names & new.names if ours(name) == of_ours):
        (before, used), (after, uses) = old.behind(name), new.behind(name)
        lines |= dict.fromkeys(_of_modules(before, after))
        lines |= dict.fromkeys(_of_values(used, uses))
    files = [] if of_ours else _of_values(old.files, new.files)
    return [*lines, *(line.partition(":")[0] for line in files)]


def _of_modules(old: Iterable[Module], new: Iterable[Module]) -> Iterator[str]:
    before, after = ({module.name: module for module in modules} for modules in (old, new))
    for name in sorted({*before, *after}):
        if (was := before.get(name)) is None:
            yield f"{after[name].file}: it is imported now"
        elif (now := after.get(name)) is None:
            yield f"{was.file}: it is imported no more"
        elif was.digest != now.digest:
            defined, defines = definitions(was.content), definitions(now.content)
            changed = [f"{one} (gone)" for one in defined if one not in defines]
            changed += [
                one if one in defined else f"{one} (new)"
                for one in defines
                if defined.get(one) != defines[one]
            ]
            yield f"{now.file}: {', '.join(changed) or NOWHERE}"


def _of_values(old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[str]:
    for name in sorted({*old, *new}):
        if old.get(name) != new.get(name):
            yield f"{name}: {old.get(name)} -> {new.get(name)}"
