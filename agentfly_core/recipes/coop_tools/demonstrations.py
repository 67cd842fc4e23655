"""A simulated model that replies for all roles of the team CoopTeam, and for the agent OneAgent."""

import json
import random
import re
from collections.abc import Sequence
from urllib.parse import quote_plus

from agentfly_core import Conversation, Problem
from agentfly_core.datasets.players import Demonstrator
from agentfly_core.recipes.coop_tools import agents
from agentfly_core.recipes.coop_tools.world import KINDS

BUGS = 0.25
"""The share of the observer's programs that read a wrong field of the service's answer."""
QUESTION = re.compile(
    r"In the (\w+) of the (\w+) ([\w ]+) \((\w+) (\w+)\), what is the value of (\w+)\?"
)
PLURALS = {single: kind for kind, single in KINDS.items()}


def grounded(text: str) -> str:
    """Reply as the grounder of a CoopTeam, i.e. the role that selects the next endpoint.

    The first reply selects the endpoint that searches for an id. The second reply selects the
    endpoint with the value to find. The third reply is the answer. `text` contains the values
    that have been extracted so far.
    """
    aspect, single, name, parameter, option, key = _question(text)
    kind, values = PLURALS[single], re.findall(r"^- .* -> (.*)$", text, re.M)
    if not values:
        task = f"Find the id of the {single} {name}."
        return json.dumps({"endpoint": f"/{kind}/search", "task": task})
    id = _value(values[0], "id", "")
    if len(values) == 1 and id.isdigit():
        task = f"Find the value of {key} for id {id} ({parameter} {option})."
        return json.dumps({"endpoint": f"/{kind}/{{id}}/{aspect}", "task": task})
    return json.dumps({"answer": _value(values[-1], "value", key)})


def executed(texts: Sequence[str]) -> str:
    """Reply as the executor (the role that makes requests), with the URL of a request for the task.

    The name of the request's parameter comes from the endpoint's documentation, which may be
    outdated. The service answers a wrong name with an error that contains the right name. If the
    last message is such an error, the request uses the name in the error.
    """
    document = re.search(r"GET (\S+):.*(?:\n  (\w+):)?", texts[0])
    assert document
    if match := re.search(r"^Task: Find the id of the \w+ ([\w ]+)\.", texts[0], re.M):
        return json.dumps({"url": f"{document[1]}?name={quote_plus(match[1])}"})
    match = re.search(r"for id (\d+) \(\w+ (\w+)\)", texts[0])
    assert match
    fixed = re.findall(r"unknown; use (\w+)", texts[-1])
    parameter = fixed[0] if fixed else document[2]
    return json.dumps({"url": f"{document[1].replace('{id}', match[1])}?{parameter}={match[2]}"})


def coded(texts: Sequence[str], draw: random.Random) -> str:
    """Reply as the observer (the role that reads the service's answers).

    The reply is Python code that extracts a value from an answer.

    With the probability BUGS, the code reads a wrong field.
    """
    key = _key(texts[0])
    field = '["value"]' if draw.random() < BUGS else '["data"]["value"]'
    return (
        "def extract(response):\n    for item in response['items']:\n"
        f"        if item['key'] == {key!r}:\n            return item{field}\n"
    )


def alone(texts: Sequence[str]) -> str:
    """Reply as a single agent (`OneAgent`), which makes requests and reads the service's answers.

    The first reply requests the id of a record, and the next reply its value. If the service
    answers the second request with an error that names the right parameter, the request is repeated
    with this parameter. The last reply is the answer.
    """
    aspect, single, name, parameter, option, key = _question(texts[0])
    kind, last = PLURALS[single], texts[-1]
    answers = [text for text in texts[1:] if text.startswith("200 ")]
    if not answers:
        return json.dumps({"url": f"/{kind}/search?name={quote_plus(name)}"})
    id = _value(answers[0], "id", "")
    if len(answers) == 1:
        document = re.search(rf"GET /{kind}/{{id}}/{aspect}:.*\n  (\w+):", texts[0])
        assert document
        fixed = re.findall(r"unknown; use (\w+)", last)
        parameter = fixed[0] if fixed else document[1]
        return json.dumps({"url": f"/{kind}/{id}/{aspect}?{parameter}={option}"})
    return json.dumps({"answer": _value(answers[-1], "value", key)})


def simulated(texts: Sequence[str], draw: random.Random) -> str:
    """Return the simulated model's next reply in a conversation with the messages `texts`.

    The instruction at the end of the last text selects the role: grounder (selects endpoints),
    executor (makes requests), observer (reads answers), or the single agent `OneAgent`.
    """
    texts = [text for text in texts if text not in agents.ROLES.values()]
    last = texts[-1]
    if last.endswith(agents.GROUND):
        return grounded(last)
    if last.endswith(agents.READ):
        return _value(last, "id" if "Find the id" in last else "value", _key(last))
    if last.endswith(agents.CODE):
        return coded(texts, draw)
    return alone(texts) if last.endswith(agents.ALONE) else executed(texts)


def team(problems: Sequence[Problem], seed: int) -> Demonstrator:
    """Return a policy that replies for all roles of the agents CoopTeam and OneAgent.

    The policy computes each reply only from the texts of the conversation.
    """

    async def policy(conversation: Conversation) -> str:
        texts = [message.content for message in conversation.messages]
        return simulated(texts, random.Random(conversation.seed + seed))

    return policy


def _question(text: str) -> tuple[str, ...]:
    match = QUESTION.search(text)
    assert match, text
    return match.groups()


def _key(text: str) -> str:
    match = re.search(r"Find the value of (\w+)", text)
    return match[1] if match else ""


def _value(text: str, field: str, key: str) -> str:
    """Find the number in the field "id" or "value" of a JSON text.

    For "value", only the record with the key `key` is searched. Without a match, the result
    is the text itself if the text is a number, and "unknown" otherwise.
    """
    before = rf'"key": "{key}", "data": {{' if key and field == "value" else ""
    if match := re.search(rf'{before}"{field}": (\d+)', text):
        return match[1]
    return text if text.isdigit() else "unknown"
