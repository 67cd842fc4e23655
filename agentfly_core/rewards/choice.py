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
"""The end of the pattern of an option: the next characters must not continue the word or number.

So the option "C" does not occur in "C++", and "1" does not occur in "1.5" or "1/2".
"""


def _examples(problem: Problem) -> Examples:
    right = _right_options(problem)
    wrong = [option for option in option_texts(problem) if option not in right]
    return Examples(tuple(right), (*NO_ANSWER, *wrong))


@reward(examples=_examples)
async def choice(trajectory: Trajectory) -> float:
    """1 if the answer names the right option and no wrong option, else 0.

    The fact `answer` of the problem has the right option, and the fact `options` has all options.
    With the options "horse" and "horse race", for example:

    - "A Horse, of course." names the first option, because case does not matter.
    - "horses" names no option, because it is a different word.
    - "a horse race" names only the second option, because the longest of overlapping options
      counts.

    Options of one letter are case-sensitive in longer answers, because "a" is an article.
    """
    problem = trajectory.problem
    options, right = option_texts(problem), _right_options(problem)
    named = _named(trajectory.answer or "", options)
    return float(len(named) == 1 and named[0] in right)


def _right_options(problem: Problem) -> list[str]:
    """Return the options that are right answers.

    Raises ValueError if the fact `answer` is not the text of an option.
    """
    options, answers = option_texts(problem), right_answers(problem)
    alike = {_key(option).casefold(): option for option in options}
    keys = [_key(one).casefold() for one in answers]
    right = list(dict.fromkeys(alike[key] for key in keys if key in alike))
    if not right:
        answer = f"{problem.facts['answer']!r:.80}"
        raise ValueError(f"facts['answer'] is {answer}, expected the text of one of the options")
    return right


def _named(answer: str, options: Sequence[str]) -> list[str]:
    """Return the options that occur in an answer, from left to right.

    Of overlapping options, only the longest is returned.
    """
    letter = answer.strip(_AROUND).casefold()
    if len(letter) == 1:
        return [option for option in options if option.casefold() == letter]
    by_key = {_key(option): option for option in options}
    # the longest option comes first, because a regex takes the first alternative that matches
    pattern = "|".join(map(_pattern, sorted(by_key, key=len, reverse=True)))
    matches = re.finditer(pattern, answer.replace("\u2212", "-"), re.IGNORECASE)
    named = [by_key.get(_key(match[0])) for match in matches]
    return list(dict.fromkeys(option for option in named if option is not None))


def _pattern(option: str) -> str:
    """Return a pattern that matches an option as a whole word or number.

    The words of the option may be separated by any white space.
    """
    before = _BEFORE + (r"(?<![-+])" if option[:1].isdecimal() else "")
    return f"{before}{_SPACES.join(map(re.escape, option.split()))}{_AFTER}"


def _key(text: str) -> str:
    """Normalise an option to lower case and single spaces. A single letter keeps its case."""
    plain = text.replace("\u2212", "-")
    return plain if len(plain) == 1 else " ".join(plain.casefold().split())
