"""A scripted policy for all speakers of `Evolve`. Agents answer only questions on their skills."""

import json
import random
import re
from collections.abc import Callable, Sequence

from agentfly_core import Conversation, Problem
from agentfly_core.datasets.players import Demonstrator
from agentfly_core.recipes.evolve.dataset import SKILLS
from agentfly_core.recipes.evolve.operators import (
    CHECK,
    CROSSOVER,
    MUTATION,
    UPDATE,
    AgentSpec,
)

UNKNOWN = "?"
INSIGHT = 0.5
"""The probability with which a new skill is drawn only from the skills for unanswered questions.

Otherwise, the new skill is drawn from all skills.
"""
Operation = Callable[[str, random.Random], str]


def answered(system: str, prompt: str) -> str:
    """Answer all questions of a prompt.

    The answer to a question is `?` if the system message lacks the skill for it.
    """
    word, names = _read(prompt)
    skills = re.findall(r"\w+", system.partition("Your skills:")[2])
    return "; ".join(SKILLS[name][1](word) if name in skills else UNKNOWN for name in names)


def improved(asked: str, draw: random.Random) -> str:
    """Reply to the prompt CROSSOVER, which requests an improved agent. The reply is JSON.

    The prompt contains an agent and the questions to answer. The improved agent keeps only the
    skills that these questions need. If they need none of the agent's skills, the improved agent
    keeps the first skill.
    """
    (parent,), (_, names) = _agents(asked), _read(asked)
    kept = tuple(skill for skill in parent.skills if skill in names) or parent.skills[:1]
    return AgentSpec(role=parent.role, skills=kept).model_dump_json()


def proposed(asked: str, draw: random.Random) -> str:
    """Reply to the prompt MUTATION, which requests a new agent. The reply is JSON.

    The new agent has the skills of an agent in the prompt, and at most two more skills.
    """
    (_, names), result = _read(asked), _line(asked, "The answer so far: ")
    open_ = [name for name, one in zip(names, result.split("; "), strict=True) if one == UNKNOWN]
    new = [
        draw.choice(open_ if open_ and draw.random() < INSIGHT else sorted(SKILLS))
        for _ in range(2)
    ]
    skills = dict.fromkeys((*draw.choice(_agents(asked)).skills, *new))
    return AgentSpec(role=f"expert in {new[0]}", skills=tuple(skills)).model_dump_json()


def checked(asked: str, draw: random.Random) -> str:
    """Reply to the prompt CHECK, which requests a quality check of a new agent.

    To be accepted, the new agent must share a skill with an agent of the team. No agent of the team
    may have the same set of skills.
    """
    child = AgentSpec.model_validate_json(_line(asked, "New agent: "))
    sets, own = [{*agent.skills} for agent in _agents(asked)], {*child.skills}
    keep = own not in sets and any(own & one for one in sets)
    return json.dumps({"keep": keep, "reason": "It is new." if keep else "There is one like it."})


def merged(asked: str, draw: random.Random) -> str:
    """Reply to the prompt UPDATE, which requests one answer that merges several answers.

    Each answer in the prompt has a part for each question: `abirned; ?; 3`. The merged answer
    contains, for each question, the first part that is not `?`.
    """
    answers = [one.split("; ") for one in re.findall(r"^Answer: (.*)$", asked, re.M)]
    columns = zip(*answers, strict=True)
    return "; ".join(next((one for one in column if one != UNKNOWN), UNKNOWN) for column in columns)


OPERATIONS: dict[str, Operation] = {
    CROSSOVER: improved,
    MUTATION: proposed,
    CHECK: checked,
    UPDATE: merged,
}


def simulated(texts: Sequence[str], draw: random.Random) -> str:
    """Reply to the last text of a conversation.

    OPERATIONS maps prompts, such as CROSSOVER, to functions. If the text contains one of these
    prompts, the prompt's function makes the reply. Otherwise the reply answers the questions in the
    text.
    """
    operation = next((reply for mark, reply in OPERATIONS.items() if mark in texts[-1]), None)
    return operation(texts[-1], draw) if operation else answered(texts[0], texts[-1])


def team(problems: Sequence[Problem], seed: int) -> Demonstrator:
    """Return a scripted policy that replies for all speakers (all agents, and the role `evolver`).

    The policy reads only the texts of the conversation, and never the problems' right answers. The
    function `simulated` makes the replies.
    """

    async def policy(conversation: Conversation) -> str:
        texts = [message.content for message in conversation.messages]
        return simulated(texts, random.Random(conversation.seed + seed))

    return policy


def _read(text: str) -> tuple[str, list[str]]:
    """Parse a text with questions about a word, such as "About the word abc, ...".

    Return the word, and the names of the skills that answer the questions.
    """
    match = re.search(r"About the word (\w+),.*?: (.*)", text)
    assert match, text
    places = {match[2].find(question): name for name, (question, _) in SKILLS.items()}
    return match[1], [places[place] for place in sorted(places) if place >= 0]


def _agents(text: str) -> list[AgentSpec]:
    return [AgentSpec.model_validate_json(one) for one in re.findall(r"^Agent: (.*)$", text, re.M)]


def _line(text: str, begin: str) -> str:
    return text.partition(begin)[2].partition("\n")[0]
