"""Each agent of docs/how-to/agents.md plays as described there, with the record shown there."""

import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
import torch
import yaml

from agentfly_core import agents
from agentfly_core.authoring.tool import tool
from agentfly_core.config import loading
from agentfly_core.config.import_path import load
from agentfly_core.experiment import checks
from agentfly_core.records.trajectory import Ending, Message, Scored, ToolCall
from agentfly_core.rl.advantage import sequences
from agentfly_core.rl.batch import pack
from agentfly_core.rl.importance_sampling import ImportanceSampling
from agentfly_core.rl.interface import Outputs
from agentfly_core.rl.policy_loss import PolicyLoss
from agentfly_core.sandbox.backends import Unavailable
from agentfly_core.system.formats.text import before_stop
from agentfly_core.testing import trajectory, turn
from agentfly_core.testing.episodes import (
    ADD,
    episode_specs,
    play,
    play_all,
    rollout_spec,
    saying,
    scripted,
)
from agentfly_core.testing.letters import Letters, as_letters, decode
from agentfly_core.tools.calculator import calculator
from tests.support.experiments import TINY
from tests.support.project import ROOT

PAGE = (ROOT / "docs/how-to/agents.md").read_text()
*BLOCKS, TEST = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
YAML = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
LINES = re.findall(r"`(agent: {use: \"my_agents.*?})`", PAGE)
ADDED = ToolCall("calculator", {"expression": "41+58"})


@tool
async def search(query: str) -> str:
    """Search.

    Args:
        query: words
    """
    return f"nothing of {query}"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with the page's file of agents and its test."""
    (tmp_path / "my_agents.py").write_text("\n".join(BLOCKS))
    (tmp_path / "my_agents_test.py").write_text(TEST)
    (tmp_path / "my_search.py").write_text(f"from {__name__} import search as search\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for module in ("my_agents", "my_agents_test", "my_search"):  # of another test's folder
        monkeypatch.delitem(sys.modules, module, raising=False)
    return tmp_path


def spec(name, *tools, **rules):
    agent = load(f"my_agents:{name}")
    return rollout_spec(*tools, agent=agent() if isinstance(agent, type) else agent, **rules)


def test_an_agent_of_the_page_can_be_read_at_a_glance():
    assert max(block.count("\n") for block in BLOCKS) <= 25


def test_the_tests_of_the_page_pass():
    assert TEST.count("def test_") == 2
    for name in re.findall(r"def (test_\w+)", TEST):
        load(f"my_agents_test:{name}")()


async def test_the_loop_of_the_page_is_the_default_agent():
    mine = await play([ADDED, "99"], spec=spec("tool_loop", calculator))
    usual = await play([ADDED, "99"], calculator)
    assert replace(mine, id=usual.id) == usual


async def test_a_draft_has_its_own_end_temperature_and_length():
    played = await play(["98END", "99"], spec=spec("drafts", stop=["END"]))
    assert [(one.reply.content, one.temperature) for one in played.turns] == [
        ("98", 1.2),
        ("99", 0.7),
    ]
    assert as_letters(played).endswith("98END$^uYour draft: 98\nWrite it without mistakes.$^a99$")


def rows(drawn) -> Iterator[str]:
    """The text of each row, and below it an `x` where a token is trained."""
    batch = pack([drawn])
    for tokens, trained, length in zip(batch.tokens, batch.sampled, batch.lengths, strict=True):
        yield decode(tokens[:length].tolist()).replace("\n", "_")
        yield "".join(".x"[one] for one in trained[:length].tolist())


async def test_the_rows_of_a_branching_conversation_match_the_page():
    played = await play(["98", "8+1", "1+8=9", "99"], spec=spec("two_ways"))
    (shown,) = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
    assert shown.splitlines() == [*rows(played)]


async def test_a_forked_episode_has_three_leaves():
    played = (await play_all(episode_specs(ADD), spec("ways"), scripted(saying("99", "98"))))[0]
    assert [one.turns[1].read[-1].content for one in played] == ["Way 0?", "Way 1?", "Way 2?"]
    assert [one.branch and one.branch.turns for one in played] == [None, 1, 1]


async def test_requests_of_a_server_are_answered_at_the_same_time():
    async def policy(conversation):
        return "ad" if "right" in conversation.messages[-1].content else "con"

    played = await play(policy, spec=spec("both"))
    assert (played.answer, [turn.call for turn in played.turns]) == ("ad\ncon", [0, 0])


async def test_a_critic_judges_a_draft_while_the_solver_explains_it():
    replies = {"solver": iter(["99", "41+58"]), "critic": iter(["Yes."])}

    async def policy(conversation):
        return next(replies[conversation.speaker])

    trajectories, *_ = await play_all(episode_specs(ADD), spec("relay"), scripted(policy))
    assert {one.agent: as_letters(one) for one in trajectories if one.turns} == {
        "critic": "^uRight? 99$^aYes.$",
        "solver": "^u41+58?$^a99$^uExplain it.$^a41+58$",
    }
    assert [one.answer for one in trajectories if one.answered] == ["Yes."]


async def test_the_critic_reads_answers_and_the_solver_criticism():
    replies = {"solver": iter(["98", "99"]), "critic": iter(["One more."])}

    async def policy(conversation):
        return next(replies[conversation.speaker])

    trajectories, *_ = await play_all(episode_specs(ADD), spec("checked"), scripted(policy))
    assert {one.agent: as_letters(one) for one in trajectories if one.turns} == {
        "solver": "^u41+58?$^a98$^uOne more.$^a99$",
        "critic": "^sSay OK, or what is wrong.$^u41+58?\nAnswer: 98$^aOne more.$",
    }
    assert [one.answer for one in trajectories if one.answered] == ["99"]


async def test_a_second_try_has_the_question_the_first_and_its_doubts():
    played = await play(["98", "8+1=9.", "99"], spec=spec("Reflect", system="Add."))
    prompt = "^sAdd.$^u41+58?"
    first = f"{prompt}$^a98$^uWhat may be wrong with that?$^a8+1=9.$"
    assert as_letters(played) == f"{first}{prompt}\nTried before: 98\nDoubts: 8+1=9.$^a99$"
    assert (played.answer, len(pack([played]).tokens)) == ("99", 2)


class Tags(Letters):
    """Letters in which a tag is text and no call."""

    def parse(self, reply, stop=()):
        return Message("assistant", before_stop(decode(reply).removesuffix("$"), stop))


async def test_a_search_ends_a_reply_and_its_result_is_read():
    replies = ["Hm. <search> sums </search> 98", "<answer> 99 </answer>"]
    rules = spec("search_tags", search, stop=["</search>", "</answer>"], template=Tags())
    played = await play(replies, spec=rules)
    assert as_letters(played) == (
        "^u41+58?$^aHm. <search> sums </search>"
        "$^u<information>nothing of sums</information>$^a<answer> 99 </answer>"
    )
    assert (played.answer, played.ending) == ("99", Ending.NO_TOOL_CALLS)


async def test_an_agent_that_breaks_names_the_line_that_the_page_shows(folder):
    hinted = replace(ADD, id="hinted", facts={"hint": "Carry."})
    rules, sampler = spec("fragile"), scripted(saying("ninety-nine"))
    trajectories, *_ = await play_all(episode_specs(ADD, hinted), rules, sampler)
    assert [one.ending for one in trajectories] == [Ending.FAILED, Ending.AGENT_ERROR]
    (message,) = re.findall(r"\*(The agent fragile raised .*?)\*", PAGE, re.DOTALL)
    assert trajectories[0].error.replace(str(folder), "/project") == message.replace("\n", " ")


def table(header: str) -> list[str]:
    """The first cells of the rows of a table."""
    return re.findall(r"^\| (.*?) \|", PAGE.partition(header)[2].partition("\n\n")[0], re.MULTILINE)


def test_every_ending_is_in_the_table():
    names = re.findall(r"`(\w+)`", " ".join(table("| ending |")))
    assert sorted(names) == sorted(Ending)


def test_every_shipped_agent_is_in_the_table_and_plays():
    paths = re.findall(r"`(agents\.\w+:\w+)`", " ".join(table("| import path,")))
    files = {path.stem for path in Path(agents.__file__).parent.glob("[a-z]*.py")}
    assert {path.partition(":")[0].removeprefix("agents.") for path in paths} == files
    for row in re.findall(r"^\| `(agents\..*)", PAGE, re.MULTILINE):
        for name in re.findall(r"\(\.\./(conf/.*?)\)", row):
            settings = loading.read(str(ROOT / name)).settings
            assert row.startswith(settings.agent.use.removeprefix("agentfly_core."))


@pytest.mark.parametrize("text", [*LINES, *YAML])
def test_every_experiment_of_the_page_is_valid(text, folder):
    (folder / "mine.yaml").write_text(yaml.safe_dump(yaml.safe_load(TINY) | yaml.safe_load(text)))
    try:
        checks.check(loading.read("mine.yaml").settings)
    except Unavailable as error:
        pytest.skip(str(error))


SAID = [turn([1], {3: -1.0}), turn([4], {5: -2.0, 6: -1.5})]
WHOLE = trajectory(*SAID)
CUT = trajectory(SAID[0], turn([1, 3, 4], {5: -2.0, 6: -1.5}, context=1))


def parts(union) -> Mapping[str, type]:
    return {kind.model_fields["use"].default: kind for kind in get_args(get_args(union)[0])}


def of_tokens(played, how):
    """Result of a loss or correction for each token of a policy with uneven updates."""
    batch = pack([played])
    moved = torch.tensor([1.0, -0.25, 0.125]).unsqueeze(0)
    layout = sequences(batch, 1)
    old = batch.rollout_logprobs + layout.scatter(moved)
    batch = replace(batch, old_logprobs=old, advantages=batch.sampled * 0.7)
    return layout.gather(how(Outputs(old + layout.scatter(moved), old, None), batch))


def by_loss(kind):
    return lambda outputs, batch: kind().tokens(outputs, batch).tokens


def by_correction(kind):
    return lambda outputs, batch: kind().weights(batch).tokens


def test_the_table_lists_every_dependence_on_rows():
    assert len(pack([CUT]).tokens) == 2
    ways = {
        **{f"`policy_loss: {name}`": by_loss(kind) for name, kind in parts(PolicyLoss).items()},
        **{
            f"`correction: {name}`": by_correction(kind)
            for name, kind in parts(ImportanceSampling).items()
        },
    }
    differ = [
        name
        for name, how in ways.items()
        if not torch.equal(of_tokens(WHOLE, how), of_tokens(CUT, how))
    ]
    assert sorted(differ) == sorted(table("| setting |"))


async def test_an_agent_reads_what_the_page_remembers(tmp_path: Path) -> None:
    before, remember = tmp_path / "before", load("my_agents:remember")
    before.mkdir()
    for number, answer in enumerate(("98", "99")):
        memory = tmp_path / f"memory-{number}"
        memory.mkdir()
        played = await play([answer], spec=spec("informed"))
        scores = [Scored(played.id, {}, (), float(answer == "99"))]
        remember(before, [played], scores, 0, memory)
        before = memory
    again = await play(["99"], spec=replace(spec("informed"), memory=before))
    assert as_letters(again) == "^u41+58? 99\n41+58?$^a99$"
