"""Right answers of a problem's fact `answer`, and examples for the check of a reward."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from typing import Any

from typing_extensions import TypeIs

from agentfly_core.records.trajectory import Examples, Problem
from agentfly_core.system.formats.text import clip

NO_ANSWER = ("", "I do not know.")
"""Wrong answers to every problem."""
_EXPECTED = (
    "a text, a number, a list of these, SQuAD's {'text': [...]} or TriviaQA's "
    "{'value': ..., 'aliases': [...]}"
)


def right_answers(problem: Problem) -> list[str]:
    """Texts of the right answers: `["Lima", "City of Lima"]`, `["72", "72.0"]` of 72.0.

    Accepts a text, a number, a list of these, SQuAD's `{"text": [...], "answer_start": [...]}` and
    TriviaQA's `{"value": "Lima", "aliases": [...]}`. Raises ValueError for anything else, and for
    empty lists or texts.
    """
    facts = problem.facts
    if "answer" not in facts:
        names = ", ".join(map(repr, facts)) or "none"
        raise ValueError(
            f"facts['answer'] is missing, the problem has {names}: map it in data.columns"
        )
    texts = [text for value in _values(facts["answer"]) for text in _texts(value, facts)]
    if not texts:
        raise _refused(facts, "no answer")
    return list(dict.fromkeys(texts))


def option_texts(problem: Problem) -> list[str]:
    """The fact `options` as texts; raises ValueError for wrong types and repeated options."""
    options = problem.facts.get("options")
    if not isinstance(options, list | tuple) or not options:
        raise ValueError(f"facts['options'] is {_written(options)}, expected a list of texts")
    texts: dict[str, str] = {}
    for number, option in enumerate(options):
        where = f"facts['options'][{number}]"
        if not _is_text_or_number(option):
            raise ValueError(f"{where} is {_written(option)}, expected a text or a number")
        text = option.strip() if isinstance(option, str) else number_text(option)
        if not text:
            raise ValueError(f"{where} is empty, expected a text")
        key = " ".join(text.casefold().split())
        if key in texts:
            raise ValueError(f"{where} repeats {texts[key]!r}: remove one")
        texts[key] = text
    return [*texts.values()]


def number_text(number: float) -> str:
    """A number without exponent and without a zero fraction: "72" of 72.0, "0.00001" of 1e-05."""
    if isinstance(number, int):
        return str(number)
    return str(int(number)) if number.is_integer() else format(Decimal(repr(number)), "f")


def examples(mistaken: Callable[[str], Iterable[str]]) -> Callable[[Problem], Examples]:
    """Make a reward's `examples`: right answers, NO_ANSWER and `mistaken` right answers."""

    def of_problem(problem: Problem) -> Examples:
        right = right_answers(problem)
        wrong = [*NO_ANSWER, *(text for one in right for text in mistaken(one))]
        return Examples(tuple(right), tuple(text for text in wrong if text not in right))

    return of_problem


def _values(answer: Any) -> list[Any]:
    """The values in one of the published shapes."""
    if isinstance(answer, Mapping):
        if isinstance(answer.get("text"), list | tuple):
            return [*answer["text"]]
        if "value" in answer:
            aliases = answer.get("aliases")
            return [answer["value"], *(aliases if isinstance(aliases, list | tuple) else ())]
    return [*answer] if isinstance(answer, list | tuple) else [answer]


def _texts(value: Any, facts: Mapping[str, Any]) -> list[str]:
    if not _is_text_or_number(value):
        raise _refused(facts, "")
    if not isinstance(value, str):
        return [number_text(value), str(value)]
    if not value.strip():
        raise _refused(facts, "an empty text, which an empty reply would match")
    return [value.strip()]


def _is_text_or_number(value: object) -> TypeIs[str | int | float]:
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, str | int) and not isinstance(value, bool)


def _refused(facts: Mapping[str, Any], why: str) -> ValueError:
    answer = _written(facts["answer"])
    return ValueError(
        f"facts['answer'] is {answer}{f', {why}' if why else ''}, expected {_EXPECTED}"
    )


def _written(value: object) -> str:
    try:
        return clip(json.dumps(value, ensure_ascii=False), 80)
    except (TypeError, ValueError):
        return clip(repr(value), 80)
