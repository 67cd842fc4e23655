"""Tags of runs. They have their own file, so a run can be tagged while it runs."""

import re
from collections.abc import Sequence

from agentfly_core.experiment.run_layout import RunLayout, undamaged
from agentfly_core.store.store import Store

WORD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def tags_of(store: Store, run: str) -> tuple[str, ...]:
    """Return the sorted tags of a run.

    If the file with the tags is damaged, a warning is logged and the result is empty.
    """
    stored = undamaged(store, RunLayout(run).tags, "The tags of the run are lost.")
    return tuple(stored["tags"]) if stored else ()


def change_tags(
    store: Store, run: str, added: Sequence[str], removed: Sequence[str]
) -> tuple[str, ...]:
    """Add and remove tags of a run, and return all tags of the run after the change.

    The next sync of the run with MLflow sends the tags. An added tag may contain only ASCII
    letters, digits, ".", "_" and "-", and must begin with a letter or a digit. Raises ValueError
    for any other added tag.
    """
    if wrong := [word for word in added if not WORD.fullmatch(word)]:
        raise ValueError(
            f"Got the tag {wrong[0]!r}, expected only letters, digits, '.', '_' and '-', for "
            "example baseline."
        )
    before = tags_of(store, run)
    tags = tuple(sorted({*before, *added} - {*removed}))
    if tags != before:
        store.write_json(RunLayout(run).tags, {"tags": tags})
    return tags
