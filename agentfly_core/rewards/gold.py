"""Read right answers from a problem's fact `answer`, and make example answers to test a reward."""

import json
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from typing import Annotated

from pydantic import Field, StrictInt, StringConstraints, TypeAdapter, ValidationError

from agentfly_core.records.trajectory import Examples, Problem
from agentfly_core.system.formats.text import clip

NO_ANSWER = ("", "I do not know.")
"""Answers that are wrong for every problem."""
_Text = Annotated[str, StringConstraints(strict=True, strip_whitespace=True, min_length=1)]
_Real = Annotated[float, Field(strict=True, allow_inf_nan=False)]
_VALUES: TypeAdapter[list[str | int | float]] = TypeAdapter(
    Annotated[list[_Text | StrictInt | _Real], Field(min_length=1)]
)
_EXPECTED = {
    "answer": "a text, a number, a list of these, SQuAD's {'text': [...]} or TriviaQA's "
    "{'value': ..., 'aliases': [...]}; data.columns renames a column",
    "options": "a list of different texts or numbers",
}


def right_answers(problem: Problem) -> list[str]:
    """Return the right answers of a problem as texts, such as `["Lima", "City of Lima"]`.

    The right answers are read from the fact `answer`. This fact is a text, a number, or a list of
    texts and numbers. It may also be a dict of SQuAD, `{"text": [...], "answer_start": [...]}`, or
    of TriviaQA, `{"value": "Lima", "aliases": [...]}`. A float gives two texts: "72" and "72.0" for
    72.0. Raises ValueError for values of other types, and for empty lists or texts.
    """
    answer = problem.facts.get("answer")
    values = answer if isinstance(answer, list | tuple) else [answer]
    if isinstance(answer, Mapping):
        aliases = answer.get("aliases") or []
        further = aliases if isinstance(aliases, list | tuple) else [None]  # a bool is refused
        values = answer["text"] if "text" in answer else [answer.get("value"), *further]
    texts = list[str]()
    for value in _checked(values, problem, "answer"):
        texts += [value] if isinstance(value, str) else [number_text(value), str(value)]
    return list(dict.fromkeys(texts))


def option_texts(problem: Problem) -> list[str]:
    """Return the fact `options` of a problem as texts.

    Raises ValueError if the fact is not a list of texts and numbers, or if an option is repeated.
    """
    options = _checked(problem.facts.get("options"), problem, "options")
    texts = [option if isinstance(option, str) else number_text(option) for option in options]
    if len({" ".join(text.casefold().split()) for text in texts}) < len(texts):
        raise _refused(problem, "options")
    return texts


def number_text(number: float) -> str:
    """Format a number without an exponent. A whole number is written without decimal places.

    For example, the text is "72" for 72.0, and "0.00001" for 1e-05.
    """
    if isinstance(number, int):
        return str(number)
    return str(int(number)) if number.is_integer() else format(Decimal(repr(number)), "f")


def examples(mistaken: Callable[[str], Iterable[str]]) -> Callable[[Problem], Examples]:
    """Make the function `examples` of a Reward, with which `agentfly prepare` checks the reward.

    The function returns right and wrong answers to a problem. The right answers are read from the
    fact `answer`. The wrong answers are the texts in the constant NO_ANSWER, and the texts that
    `mistaken` makes from each right answer.
    """

    def of_problem(problem: Problem) -> Examples:
        right = right_answers(problem)
        wrong = [*NO_ANSWER, *(text for one in right for text in mistaken(one))]
        return Examples(tuple(right), tuple(text for text in wrong if text not in right))

    return of_problem


def _checked(values: object, problem: Problem, name: str) -> list[str | int | float]:
    """Check a list of texts and numbers. Return the list without outer white space in its texts.

    Raises ValueError if `values` is not a list, or if the list is empty. Also raises ValueError for
    empty texts, for infinite numbers and NaN, and for values of other types.
    """
    try:
        return _VALUES.validate_python(values)
    except ValidationError:
        raise _refused(problem, name) from None


def _refused(problem: Problem, name: str) -> ValueError:
    fact = clip(json.dumps(problem.facts.get(name), ensure_ascii=False, default=repr), 80)
    return ValueError(f"facts['{name}'] is {fact}, expected {_EXPECTED[name]}")
