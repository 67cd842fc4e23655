"""Parsers and faults: mutated replies are repaired, none wrongly, and each remedy is counted."""

import json
import random
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import pytest

from agentfly_core.recipes.hub import faults, parsers
from agentfly_core.recipes.hub.faults import AccessFault, Faults, HubFault, ReplyFault, RequestFault
from agentfly_core.recipes.hub.parsers import JsonReply, MarkedReply
from agentfly_core.records.trajectory import Message

OBJECT = JsonReply({"say": str, "votes": int})
TAGS = MarkedReply({"thought": ("<thought>", "</thought>"), "say": ("<say>", "</say>")})
CODE = MarkedReply({"code": ("```python", "```")})
Parser = JsonReply | MarkedReply
WORDS = ["yes", "no, never", "it's 4:30", "{x}", 'he said \\"no\\"', "a < b", "12", "two  spaces"]


def drawn(draw: random.Random) -> tuple[Parser, list[str], Mapping[str, Any]]:
    """A parser, the pieces of a reply of its form, and the fields that they contain."""
    words = " ".join(draw.choices(WORDS, k=draw.randrange(1, 4)))
    space, votes = draw.choice([" ", "\n  "]), draw.randrange(100)
    if draw.random() < 0.5:
        first = ["{", '"', "say", '"', ":", " ", '"', words, '"', ",", space]
        pieces = [*first, '"', "votes", '"', ":", " ", str(votes), space.strip(" "), "}"]
        pieces = ["```json\n", *pieces, "\n```"] if draw.random() < 0.3 else pieces
        return OBJECT, pieces, {"say": json.loads(f'"{words}"'), "votes": votes}
    if draw.random() < 0.5:
        pieces = ["<thought>", f"vote {votes}", "</thought>", "\n", "<say>", words, "</say>"]
        return TAGS, pieces, {"thought": f"vote {votes}", "say": words}
    lines = f"print({votes})\nprint('{words}')"
    return CODE, ["```python", f"\n{lines}\n", "```"], {"code": lines}


def mutated(draw: random.Random, pieces: list[str]) -> list[str]:
    """The pieces without one mark, or with a comma or prose too much."""
    marks = [n for n, one in enumerate(pieces) if one.strip() and not one.strip(' \n"{},:`<>/')]
    marks += [n for n, one in enumerate(pieces) if one.startswith(("<", "`"))]
    # without its begin an object is a text that quotes something
    marks = [n for n in marks if pieces[n] != "{"]
    change = draw.choice(["lacks", "lacks", "comma", "prose"])
    if change == "lacks":
        at = draw.choice(marks)
        return pieces[:at] + pieces[at + 1 :]
    if change == "comma" and "}" in pieces:
        at = pieces.index("}")
        return [*pieces[:at], ",", *pieces[at:]]
    return ["Sure, this is it:\n\n", *pieces, "\n\nDoes it help?"]


def test_300_mutated_replies_are_repaired_and_none_wrongly():
    draw, repaired = random.Random(11), 0
    for _ in range(300):
        parser, pieces, fields = drawn(draw)
        assert parser.read("".join(pieces))[0] == fields
        text = "".join(mutated(draw, pieces))
        try:
            mended, _ = parser.read(text)
        except ReplyFault:
            continue
        assert mended == fields, text
        repaired += 1
    assert repaired >= 285


def test_two_mistakes_are_not_repaired_wrongly():
    draw = random.Random(12)
    for _ in range(300):
        parser, pieces, fields = drawn(draw)
        text = "".join(mutated(draw, mutated(draw, pieces)))
        with suppress(ReplyFault):
            assert parser.read(text)[0] == fields, text


HOPELESS = [
    (OBJECT, "I vote {0} times for it.", "NoJson"),
    (OBJECT, '{{"say": "{0}"}}', "WrongFields"),
    (OBJECT, '{{"say": "{0}", "votes": 3, "more": 1}}', "WrongFields"),
    (OBJECT, '{{"say": "yes", "votes": "{0}"}}', "WrongType"),
    (OBJECT, '{{"say": "yes", "votes": {0}}} {{"say": "no", "votes": 3}}', "AmbiguousReply"),
    (OBJECT, '{{"say: yes", votes: {0}}}', "BrokenJson"),
    (OBJECT, '{{"say": "yes {0}', "BrokenJson"),
    (TAGS, "vote {0} <say>yes", "MissingMark"),
    (TAGS, "<say>yes</say><thought>{0}</thought>", "MissingMark"),
    (CODE, "print({0})", "MissingMark"),
]


@pytest.mark.parametrize(("parser", "form", "fault"), HOPELESS)
def test_a_hopeless_reply_has_the_class_of_its_fault(parser: Parser, form: str, fault: str):
    for number in range(110, 120):
        with pytest.raises(ReplyFault) as raised:
            parser.read(form.format(number))
        assert type(raised.value).__name__ == fault


@pytest.mark.parametrize("text", ["{" * 400, '{"a": ' * 66, "{" * 8 + " and so on" * 39])
def test_a_repair_decodes_a_bounded_number_of_texts(text, monkeypatch):
    decoded, decode = list[int](), parsers._object_at
    monkeypatch.setattr(parsers, "_object_at", lambda *a: decoded.append(1) or decode(*a))
    with pytest.raises(ReplyFault):
        OBJECT.read(text)
    # up to four marks at each place, and an object at each of up to nine braces
    assert len(decoded) < 4 * 400 * 9


@pytest.mark.parametrize(
    ("parser", "text", "by_rule"),
    [
        (OBJECT, '{"say": " yes ", "votes": 3}', False),
        (OBJECT, 'So: {"say": "yes", "votes": 3}', True),
        (OBJECT, '{"say": "yes", "votes": 3}.', True),
        (TAGS, "<thought>a</thought>\n<say>yes</say>", False),
        (TAGS, "So: <thought>a</thought><say>yes</say>", True),
        (TAGS, "<thought>a</thought>so<say>yes</say>", True),
        (TAGS, "<thought>a<say>yes</say>", True),
    ],
)
def test_text_around_a_reply_needs_a_rule(parser, text, by_rule):
    fields, needed = parser.read(text)
    assert (fields["say"], needed) == ("yes", by_rule)


GOOD, PROSE, BAD = '{"say": "yes", "votes": 1}', 'So: {"say": "yes", "votes": 1}', "no"


@pytest.mark.parametrize(
    ("answers", "remedies"),
    [
        ([GOOD], {}),
        ([PROSE], {faults.RULE_FIX: 1}),
        ([AccessFault(), AccessFault(), GOOD], {faults.RETRY: 2}),
        ([BAD, GOOD], {faults.ASK_MODEL: 1}),
        ([Message("assistant", GOOD, cut=True), GOOD], {faults.ASK_MODEL: 1}),
        ([BAD, AccessFault(), PROSE], {faults.ASK_MODEL: 1, faults.RETRY: 1, faults.RULE_FIX: 1}),
        ([BAD, BAD], {faults.ASK_MODEL: 1, faults.GIVE_UP: 1}),
        ([AccessFault()] * 4, {faults.RETRY: 3, faults.GIVE_UP: 1}),
        ([RequestFault()], {faults.GIVE_UP: 1}),
    ],
)
async def test_each_fault_has_its_remedy_and_is_counted(answers, remedies):
    counts, slept, left = Counter[str](), list[float](), list(answers)

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    async def ask(fault: str) -> Message:
        answer = left.pop(0)
        if isinstance(answer, HubFault):
            raise answer
        return answer if isinstance(answer, Message) else Message("assistant", answer)

    treatment = Faults(counts, retries=3, interval=2.5, sleep=sleep)
    if faults.GIVE_UP in remedies:
        with pytest.raises(HubFault):
            await treatment.fields(ask, OBJECT)
    else:
        assert await treatment.fields(ask, OBJECT) == {"say": "yes", "votes": 1}
    assert counts == remedies and not left
    assert slept == [2.5] * remedies.get(faults.RETRY, 0)
