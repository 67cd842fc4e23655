"""A reward for answers that name one of several options."""

import re
from collections.abc import Sequence

from agentfly_core.authoring.reward import reward
from agentfly_core.records.trajectory import Examples, Problem, Trajectory
from agentfly_core.rewards.gold import NO_ANSWER, option_texts, right_answers

_BEFORE = r"(?<!\w)(?<!\w[-'’])(?<!\d[.,/:])"
_AROUND = " \n\t()[]*.:'\""
_SPACES = r"\s+"
_AFTER = r"(?![\w+#%]|[-'’]\w|[.,/:]\d)"
"""Pattern after an option, which must be a whole word or number: `C` is not in `C++`, nor is `1` in
`1.5`, `-1` or `1/2`.
"""


def _examples(problem: Problem) -> Examples:
    right = _right_options(problem)
    wrong = [option for option in option_texts(problem) if option not in right]
    return Examples(tuple(right), (*NO_ANSWER, *wrong))


@reward(examples=_examples)
async def choice(trajectory: Trajectory) -> float:
    """1 if the answer names `problem.facts["answer"]` and no other of `problem.facts["options"]`.

    With the options "horse" and "horse race", "A Horse, of course." names the first: case does not
    matter, but "horses" is another word. Of overlapping options, the longest counts, so "a horse
    race" names only the second. Options of one letter are case-sensitive within a sentence, because
    "a" is an article.
    """
    problem = trajectory.problem
    options, right = option_texts(problem), _right_options(problem)
    named = _named(trajectory.answer or "", options)
    return float(len(named) == 1 and named[0] in right)


def _right_options(problem: Problem) -> list[str]:
    """Return the options of the fact `answer`. Raises ValueError if none exist."""
    options, answers = option_texts(problem), right_answers(problem)
    alike = {_key(option).casefold(): option for option in options}
    keys = [_key(one).casefold() for one in answers]
    right = list(dict.fromkeys(alike[key] for key in keys if key in alike))
    if not right:
        answer = f"{problem.facts['answer']!r:.80}"
        raise ValueError(f"facts['answer'] is {answer}, expected the text of one of the options")
    return right


def _named(answer: str, options: Sequence[str]) -> list[str]:
    """Return the options that occur in an answer, from left to right. Of overlapping options, the
    longest counts.
    """
    letter = answer.strip(_AROUND).casefold()
    if len(letter) == 1:
        return [option for option in options if option.casefold() == letter]
    by_key = {_key(option): option for option in options}
    # the longest first: a regex takes the first alternative that fits
    pattern = "|".join(map(_pattern, sorted(by_key, key=len, reverse=True)))
    matches = re.finditer(pattern, answer.replace("\u2212", "-"), re.IGNORECASE)
    named = [by_key.get(_key(match[0])) for match in matches]
    return list(dict.fromkeys(option for option in named if option is not None))


def _pattern(option: str) -> str:
    """Return a pattern for an option as a whole word or number, with any white space within it."""
    before = _BEFORE + (r"(?<![-+])" if option[:1].isdecimal() else "")
    return f"{before}{_SPACES.join(map(re.escape, option.split()))}{_AFTER}"


def _key(text: str) -> str:
    """Normalise an option: lower case and single spaces. Single letters keep their case."""
    plain = text.replace("\u2212", "-")
    return plain if len(plain) == 1 else " ".join(plain.casefold().split())
