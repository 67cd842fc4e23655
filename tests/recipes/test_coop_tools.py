"""ConAgents with a simulated policy: three speakers and one, ablations, faults, long answers."""

import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import NormalDist
from typing import Any

import pytest

from agentfly_core.pipeline.play import exported
from agentfly_core.recipes.coop_tools import agents
from agentfly_core.recipes.coop_tools.agents import ROLES, CoopTeam, ObserverAlone, OneAgent
from agentfly_core.recipes.coop_tools.demonstrations import BUGS, simulated
from agentfly_core.recipes.coop_tools.observing import LONG, ExtractionError, extracted, schema
from agentfly_core.recipes.coop_tools.world import (
    ASPECTS,
    ENTITIES,
    FORMER,
    KINDS,
    OPTIONS,
    RestWorld,
)
from agentfly_core.records.trajectory import Problem, Trajectory
from agentfly_core.rewards.exact import exact
from agentfly_core.testing import (
    Simulated,
    Visible,
    loss_mask,
    problems_of,
    rollout_spec,
    scores_of_policy,
)
from agentfly_core.testing.episodes import episode_specs, play_all, scripted
from tests.support.paired_outcomes import sign_test

SEED = 1211
LACKS = ("server_feedback", "code_feedback", "observer")
PLACES = [(kind, aspect) for kind in KINDS for pair in ASPECTS for aspect in pair]


def problems(size: int) -> list[Problem]:
    path = "agentfly_core.recipes.coop_tools.dataset:rest_questions"
    return problems_of(path, seed=SEED, train=size, validation=1, test=1)["train"]


def tasks(size: int) -> list[Problem]:
    path = "agentfly_core.recipes.coop_tools.dataset:observations"
    return problems_of(path, seed=SEED, train=size, validation=1, test=1)["train"]


def replies(visible: Visible) -> str:
    return simulated(visible.texts, visible.draw)


def spec_of(agent: Any) -> Any:
    return rollout_spec(
        agent=agent, max_turns=20, max_tokens=100_000, max_model_len=1_000_000, deadline=600.0
    )


async def solved(agent: Any, drawn: Sequence[Problem]) -> list[bool]:
    policy = Simulated([replies])
    scores = await scores_of_policy(policy, drawn, spec_of(agent), [exact])
    assert policy.facts_read == 0
    return [one["exact"] == 1.0 for one in scores.values()]


async def played(agent: Any, drawn: Sequence[Problem]) -> list[Trajectory]:
    sampler = scripted(Simulated([replies]))
    trajectories, *_ = await play_all(episode_specs(*drawn), spec_of(agent), sampler)
    return trajectories


@pytest.fixture(autouse=True)
def in_process(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The simulated policy's own code without a sandbox, unless a test is marked `slow`."""

    async def run(code: str, body: str) -> str:
        own: dict[str, Any] = {}
        try:
            exec(code, own)
            return str(own["extract"](json.loads(body)))
        except Exception as error:
            raise ExtractionError(repr(error)) from error

    if "slow" not in request.keywords:
        monkeypatch.setattr(agents, "extracted", run)
    yield


def test_of_57_documents_some_are_outdated():
    world = RestWorld(SEED)
    assert len(world.endpoints) == 57
    outdated = [place for place in PLACES if world.is_outdated(*place)]
    assert 8 <= len(outdated) <= 24
    for kind, aspect in PLACES:
        (name,) = world.endpoints[f"/{kind}/{{id}}/{aspect}"].parameters
        parameter = world.parameter(kind, aspect)
        assert name == (FORMER[parameter] if (kind, aspect) in outdated else parameter)


def test_every_answer_equals_its_records_and_has_1_to_40_kb():
    world, sizes = RestWorld(SEED), list[int]()
    for kind, aspect in PLACES:
        parameter = world.parameter(kind, aspect)
        for number, option in ((1, OPTIONS[parameter][0]), (ENTITIES, OPTIONS[parameter][-1])):
            answer = world.get(f"/{kind}/{number}/{aspect}?{parameter}={option}")
            items = json.loads(answer.body)["items"]
            values = {one["key"]: one["data"]["value"] for one in items}
            assert values == world.records(kind, number, aspect, option)
            assert answer == RestWorld(SEED).get(f"/{kind}/{number}/{aspect}?{parameter}={option}")
            sizes.append(len(answer.body))
    assert 1_000 <= min(sizes) < LONG < 30_000 < max(sizes) <= 41_000


def test_pages_and_searches_agree_on_every_id():
    world = RestWorld(SEED)
    for kind in KINDS:
        pages = [json.loads(world.get(f"/{kind}?page={n}").body) for n in (1, 2, 3)]
        listed = {one["id"]: one["name"] for page in pages for one in page["items"]}
        assert [*listed] == [*range(1, ENTITIES + 1)]
        for number, name in listed.items():
            for url in (f"/{kind}/{number}", f"/{kind}/search?name={name}"):
                assert json.loads(world.get(url).body) == {"id": number, "name": name}


def test_errors_explain_what_to_change():
    world, kind, aspect = RestWorld(SEED), *PLACES[0]
    parameter = world.parameter(kind, aspect)
    for url, status, hint in (
        (f"/{kind}/{{id}}/{aspect}", 400, f"/{kind}/search?name=NAME"),
        (f"/{kind}/7/{aspect}", 400, "must be one of"),
        (f"/{kind}/7/{aspect}?wrong=1", 400, f"use {parameter}"),
        (f"/{kind}/7/nothing", 404, "does not exist"),
        (f"/{kind}/99", 404, "film 99 does not exist"),
        (f"/{kind}?page=9", 400, "pages are 1 to 3"),
        (f"/{kind}/search", 400, "name is missing"),
        ("nonsense", 404, "does not exist"),
        ("/films/²", 400, "is not an id"),
        (f"/films/{'7' * 5000}", 400, "is not an id"),
        ("/films?page=²", 400, "pages are 1 to 3"),
        ("//[", 400, "not a URL"),
        ("http://[x", 400, "not a URL"),
    ):
        answer = world.get(url)
        assert (answer.status, hint in answer.body) == (status, True), url


def test_requests_of_random_text_are_answered():
    draw, world = random.Random(5), RestWorld(SEED)
    alphabet = "/films?people=&shops{id}7²%é\x00 [x]:#"
    for number in range(1000):
        begin = ("", "//", "/films/", "/films?page=")[number % 4]
        answer = world.get(begin + "".join(draw.choices(alphabet, k=draw.randrange(30))))
        assert answer.status in (200, 400, 404)
        json.loads(answer.body)


def body_of(problem: Problem) -> tuple[str, int]:
    """The service's right answer to a question, and the place behind the value in it."""
    world, (kind, number, aspect) = RestWorld(SEED), problem.id.split("-")
    parameter = world.parameter(kind, aspect)
    option = problem.prompt.partition(f"({parameter} ")[2].partition(")")[0]
    body = world.get(f"/{kind}/{number}/{aspect}?{parameter}={option}").body
    key = problem.prompt.rpartition(" ")[2].strip("?")
    begin = f'"key": "{key}", "data": {{"value": '
    return body, body.index(",", body.index(begin) + len(begin))


def chance(agent: CoopTeam | OneAgent, problem: Problem) -> float:
    """The closed form: a value in the beginning is always read, a later one by code alone."""
    world, (kind, _, aspect) = RestWorld(SEED), problem.id.split("-")
    body, end = body_of(problem)
    is_team = isinstance(agent, CoopTeam)
    if is_team and agent.requests == 1 and world.is_outdated(kind, aspect):
        return 0.0
    if end <= LONG or len(body) <= LONG:
        return 1.0
    return 1 - BUGS**agent.codes if is_team and agent.observer else 0.0


@pytest.mark.long
async def test_three_speakers_beat_one_agent_and_each_ablation() -> None:
    drawn, results = problems(200), dict[str, list[bool]]()
    arms = {lacks: CoopTeam(**{lacks: False}) for lacks in LACKS}
    for name, agent in {"team": CoopTeam(), "alone": OneAgent(), **arms}.items():
        results[name] = await solved(agent, drawn)
        chances = [chance(agent, one) for one in drawn]
        reach = NormalDist().inv_cdf(0.995) * sum(one * (1 - one) for one in chances) ** 0.5
        assert abs(sum(results[name]) - sum(chances)) <= reach, name
    team, alone = results["team"], results["alone"]
    assert sum(team) >= sum(alone) + 30
    assert await solved(OneAgent(attempts=3), drawn) == alone
    assert sign_test(team, alone) < 0.01
    for lacks in LACKS:
        assert sum(team) >= sum(results[lacks]) + 10, lacks


async def test_errors_that_explain_themselves_are_recovered() -> None:
    world, drawn = RestWorld(SEED), problems(200)
    fixable = [one for one in drawn if world.is_outdated(*one.id.split("-")[::2])]
    assert len(fixable) >= 40
    assert sum(await solved(CoopTeam(), fixable)) >= 0.95 * len(fixable)


async def test_a_service_that_is_down_ends_the_task_within_its_retries() -> None:
    drawn = problems(5)
    down = tuple(RestWorld(SEED).endpoints)
    trajectories = await played(CoopTeam(down=down, max_steps=2, retries=2), drawn)
    executors = [len(one.turns) for one in trajectories if one.speaker == "executor"]
    assert executors and max(executors) <= 6
    assert {one.ending.value for one in trajectories} == {"no_tool_calls"}


async def test_values_behind_the_beginning_need_the_schema_and_code() -> None:
    late = [one for one in problems(300) if body_of(one)[1] > LONG]
    assert len(late) >= 50
    assert all(await solved(CoopTeam(retries=9), late))
    assert not any(await solved(CoopTeam(observer=False), late))


async def test_the_observer_alone_reads_the_answers_of_its_team() -> None:
    made = tasks(40)
    answers = [one.facts["answer"] for one in problems(40)]
    assert [one.facts["answer"] for one in made] == answers
    assert [one.facts["digits"] for one in made] == [str(len(one)) for one in answers]
    assert all(await solved(ObserverAlone(retries=9, reads=1000), made))


async def test_each_long_answer_is_read_by_code() -> None:
    (trajectory,) = [
        one for one in await played(ObserverAlone(retries=0, reads=1000), tasks(2)[1:]) if one.turns
    ]
    assert trajectory.turns[0].read[-1].content.endswith(agents.CODE)


async def test_an_adaptive_executor_gives_a_task_back() -> None:
    notes = list[str]()

    def gives_back(visible: Visible) -> str | None:
        last = visible.texts[-1]
        if last.endswith(agents.GROUND) and "failed: 0 not here" in last:
            notes.append(last)
        return '{"back": "not here"}' if last.endswith(agents.GIVE_BACK) else None

    for protocol, expected in (("adaptive", True), ("automatic", False)):
        notes.clear()
        spec = spec_of(CoopTeam(protocol, max_steps=2))
        await play_all(
            episode_specs(*problems(1)), spec, scripted(Simulated([gives_back, replies]))
        )
        assert bool(notes) == expected


async def test_exports_of_the_roles_divide_the_replies(tmp_path: Path) -> None:
    """As `agentfly export RUN --episodes --speaker observer` writes them."""
    trajectories = [one for one in await played(CoopTeam(), problems(3)) if one.turns]
    sampled = [span for one in trajectories for turn in one.turns for span in turn.sampled]
    replies = list[str]()
    for role in ROLES:
        exported.export(trajectories, role, tmp_path / role)
        rows = (tmp_path / role / "chats.jsonl").read_text().splitlines()
        chats = [json.loads(row)["messages"] for row in rows]
        own = [one for one in trajectories if one.speaker == role]
        assert len(chats) == len({(one.id, turn.context) for one in own for turn in one.turns})
        assert {chat[0]["content"] for chat in chats} == {ROLES[role]}
        replies += [one["content"] for chat in chats for one in chat if one["role"] == "assistant"]
    expected = [turn.reply.content for one in trajectories for turn in one.turns]
    assert sorted(replies) == sorted(expected)
    trained = sum(loss_mask(one).count("x") for one in trajectories)
    assert trained == sum(len(span.tokens) for span in sampled)


@pytest.mark.slow
@pytest.mark.usefixtures("sandbox")
async def test_extraction_runs_in_a_sandbox() -> None:
    body = json.dumps({"items": [1, 2]})
    assert await extracted("def extract(response):\n    return sum(response['items'])", body) == "3"
    with pytest.raises(ExtractionError, match="ZeroDivisionError"):
        await extracted("def extract(response):\n    return 1 / 0", body)


def test_a_schema_has_types_alone():
    value = {"items": [{"key": "a", "value": 1}, {"key": "b"}], "page": None, "none": []}
    assert schema(value) == {
        "items": [{"key": "str", "value": "int"}],
        "page": "NoneType",
        "none": [],
    }
