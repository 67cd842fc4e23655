"""Agents that use a REST service: a team of three roles, the team's observer, or a single agent."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from agentfly_core import Context, Ending, Episode, Message, Problem, Speaker
from agentfly_core.recipes.coop_tools.observing import LONG, ExtractionError, extracted, schema
from agentfly_core.recipes.coop_tools.world import HttpAnswer, RestEndpoint, RestWorld

ROLES = {
    "grounder": "You select endpoints.",
    "executor": "You make requests.",
    "observer": "You extract values.",
}
"""The system message of each role in a `CoopTeam`."""
GROUND = (
    'Reply with JSON alone: {"endpoint": "...", "task": "..."} for the next request, or '
    '{"answer": "..."}.'
)
EXECUTE = 'Reply with JSON alone: {"url": "..."}.'
GIVE_BACK = 'If the endpoint does not fit, reply {"back": "the reason"}.'
READ = "Reply with the value alone."
CODE = "Reply with Python code alone that defines extract(response), which returns the value."
ALONE = 'Reply with JSON alone: {"url": "..."} for a request, or {"answer": "..."}.'


class CoopTeam:
    """A team that uses a REST service, after ConAgents (arXiv 2403.03031).

    A grounder selects endpoints of the service. An executor makes requests. An observer extracts
    values from the service's answers.

    The team takes at most `max_steps` steps. Each step adds a note for the grounder. The note
    usually contains a value from the service.

    - The executor makes a request. If the request fails, the executor reads the error and makes a
      new request, at most `retries` times. Without `server_feedback`, it makes only one request.
    - The observer reads answers of at most `reads` characters. For longer answers, it writes code
      that extracts the value. If the code fails, the observer reads the error and writes new code,
      at most `retries` times. Without `code_feedback`, it writes code only once. If all code fails,
      the observer reads the first `reads` characters of the answer.
    - Without `observer`, the first `reads` characters of an answer become the note.
    - With the protocol `adaptive`, the executor may refuse a task and give the grounder a reason.
    - `down` lists endpoints that answer with the status 503.
    """

    def __init__(
        self,
        protocol: Literal["automatic", "adaptive"] = "automatic",
        max_steps: int = 5,
        retries: int = 3,
        server_feedback: bool = True,
        code_feedback: bool = True,
        observer: bool = True,
        down: Sequence[str] = (),
        reads: int = LONG,
    ) -> None:
        self.protocol, self.max_steps, self.observer = protocol, max_steps, observer
        self.reads = reads
        self.requests = 1 + retries * server_feedback
        self.codes = 1 + retries * code_feedback
        self.down = frozenset(down)

    async def __call__(self, episode: Episode) -> Ending:
        world = RestWorld(episode.problem.facts["world"], self.down)
        grounder, executor, observer = (
            episode.speaker(role, system=system) for role, system in ROLES.items()
        )
        grounder.answer("")
        notes = list[str]()
        for _ in range(self.max_steps):
            step = await self._grounded(grounder, episode, world, notes)
            if "answer" in step:
                grounder.answer(str(step["answer"]))
                break
            endpoint, task = world.endpoints.get(str(step.get("endpoint"))), str(step.get("task"))
            if endpoint is None:
                notes.append(f"{task} -> there is no endpoint {step.get('endpoint')}")
                continue
            answer = await self._executed(executor, world, endpoint, f"{task}\n{_known(notes)}")
            notes.append(f"{task} -> {await self._observed(observer, task, answer)}")
        return Ending.NO_TOOL_CALLS

    async def _grounded(
        self, grounder: Speaker, episode: Episode, world: RestWorld, notes: Sequence[str]
    ) -> Mapping[str, Any]:
        endpoints = "\n".join(f"{one.path}: {one.summary}" for one in world.endpoints.values())
        text = f"{endpoints}\nQuestion: {episode.problem.prompt}\n{_known(notes)}\n{GROUND}"
        return _object((await grounder.context().reply(Message("user", text))).content)

    async def _executed(
        self, executor: Speaker, world: RestWorld, endpoint: RestEndpoint, task: str
    ) -> HttpAnswer:
        """Return the service's answer to the executor's last request.

        If the executor refuses the task, the result has the status 0, and its body is the
        executor's reason for the refusal.
        """
        context, answer = executor.context(), HttpAnswer(0, "no request was made")
        form = f"{EXECUTE} {GIVE_BACK}" if self.protocol == "adaptive" else EXECUTE
        text = f"{endpoint.document}\nTask: {task}\n{form}"
        for _ in range(self.requests):
            reply = _object((await context.reply(Message("user", text))).content)
            if "back" in reply and self.protocol == "adaptive":
                return HttpAnswer(0, str(reply["back"]))
            answer = world.get(str(reply.get("url")))
            if answer.status == 200:
                break
            text = f"{answer.status} {answer.body}\n{EXECUTE}"
        return answer

    async def _observed(self, observer: Speaker, task: str, answer: HttpAnswer) -> str:
        """Return a note about the service's answer to a request.

        The note is usually the value that the task needs. For a failed request, it is the error.
        """
        if answer.status != 200:
            return f"failed: {answer.status} {answer.body}"
        if not self.observer:
            return answer.body[: self.reads]
        if len(answer.body) > self.reads:
            form = json.dumps(schema(json.loads(answer.body)))
            text, context = f"Task: {task}\nResponse: {form}\n{CODE}", observer.context()
            for _ in range(self.codes):
                code = (await context.reply(Message("user", text))).content
                try:
                    return await extracted(code, answer.body)
                except ExtractionError as error:
                    text = f"{error}\n{CODE}"
        text = f"Task: {task}\nResponse: {answer.body[: self.reads]}\n{READ}"
        return (await observer.context().reply(Message("user", text))).content.strip()


class ObserverAlone(CoopTeam):
    """The observer of `CoopTeam` without the other roles.

    The problems are from the dataset `observations`. The problem's fact `url` is the URL of a
    request to the service. The observer extracts from the service's answer the value that the
    problem's prompt asks for.
    """

    async def __call__(self, episode: Episode) -> Ending:
        facts, role = episode.problem.facts, "observer"
        observer = episode.speaker(role, system=ROLES[role])
        answer = RestWorld(facts["world"], self.down).get(facts["url"])
        observer.answer(await self._observed(observer, episode.problem.prompt, answer))
        return Ending.NO_TOOL_CALLS


class OneAgent:
    """A single agent that selects endpoints, makes requests and reads the service's answers.

    The agent reads the first LONG characters of each answer of the service. The agent solves the
    problem `attempts` times. Its most frequent solution becomes the answer of the episode.
    """

    def __init__(self, attempts: int = 1) -> None:
        self.attempts = attempts

    async def __call__(self, episode: Episode) -> Ending:
        answers = list[str]()
        episode.answer("")
        for _ in range(self.attempts):
            answers.append(await self._answered(episode.context(), episode.problem))
            episode.answer(max(answers, key=answers.count))
        return Ending.NO_TOOL_CALLS

    async def _answered(self, context: Context, problem: Problem) -> str:
        world = RestWorld(problem.facts["world"])
        documents = "\n".join(one.document for one in world.endpoints.values())
        text = f"{documents}\nQuestion: {problem.prompt}\n{ALONE}"
        while True:
            reply = _object((await context.reply(Message("user", text))).content)
            if "answer" in reply:
                return str(reply["answer"])
            answer = world.get(str(reply.get("url")))
            text = f"{answer.status} {answer.body[:LONG]}\n{ALONE}"


def _known(notes: Sequence[str]) -> str:
    return "\n".join(["Known:", *(f"- {one}" for one in notes)])


def _object(text: str) -> Mapping[str, Any]:
    """Parse the JSON object of a reply; return {} for any other text."""
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
