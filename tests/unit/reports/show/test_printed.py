import io
import re
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from rich.console import Console
from rich.text import Text

from agentfly_core.records.trajectory import Message, Scored, Trajectory
from agentfly_core.reports.show.choice import (
    Conditions,
    by_episode,
    first,
    matching,
)
from agentfly_core.reports.show.printed import SAME, show
from agentfly_core.runs.episodes import Episodes, Pair, Piece, decoder, pieces, read_step
from agentfly_core.store.store import Store
from agentfly_core.testing import trajectories as turns
from tests.support.stored_run import episode, stored_run, turn


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A run with a scored step 6 and a partly played step 7."""
    return stored_run(tmp_path)


def printed(store: Store, step: int | None, worst: int, colour: bool) -> str:
    console = Console(
        file=io.StringIO(),
        width=110,
        force_terminal=colour,
        color_system="truecolor" if colour else None,
    )
    stored = read_step(store, "demo", step)
    console.print(show(stored, 4, first(by_episode(stored.pairs), "worst", worst)))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_each_line_is_marked_as_read_or_sampled_without_colour(store: Store) -> None:
    text = [line.rstrip() for line in printed(store, 6, 4, colour=False).splitlines()]
    start = next(number for number, line in enumerate(text) if "chain 0" in line)
    assert text[start + 1 :] == [
        "     read | <|im_start|>user",
        "          | What is 41+58?<|im_end|>",
        "          | <|im_start|>assistant",
        "          |",
        (
            '  sampled > <tool_call>{"name": "calculator", "arguments": {"expression": "41+58"}}'
            "</tool_call><|im_end|>"
        ),
        "     read |",
        "          | <|im_start|>tool",
        "          | 99<|im_end|>",
        "          | <|im_start|>assistant",
        "          |",
        "  sampled > The sum is 99.<|im_end|>",
    ]


def test_colour_marks_sampled_text_and_keeps_its_letters(store: Store) -> None:
    coloured = printed(store, 6, 4, colour=True)
    assert "\x1b[1;32m> The sum is 99.<|im_end|>" in coloured
    assert "\x1b[2m| What is 41+58?<|im_end|>" in coloured
    assert Text.from_ansi(coloured).plain.split() == printed(store, 6, 4, colour=False).split()


def test_unscored_and_then_the_worst_episodes_come_first(
    store: Store,
) -> None:
    everything = printed(store, 6, 4, colour=False)
    assert re.findall(r"chain (\d);", everything) == ["3", "1", "2", "0"]
    text = printed(store, 6, 2, colour=False)
    assert "4 episodes, 3 scored, mean reward 0.500" in text
    assert "chain 3; unscored (the episode failed); ended failed" in text
    assert "error: shop: ServiceFailure: it died" in text
    assert "chain 1; reward 0 (exact 0)" in text
    assert "chain 2" not in text


SYSTEM = "<|im_start|>system\nUse the tools.<|im_end|>\n"


def conversation(chain: int, system: str, question: str) -> Trajectory:
    text = f"{system}<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"
    read = (Message("system", "Use the tools."), Message("user", question))
    return episode(chain, replace(turn(text, "99<|im_end|>"), read=read))


def text_of(store: Store, *played: Trajectory) -> str:
    """Print these episodes, without spaces at the ends of lines."""
    pairs = tuple((trajectory, None) for trajectory in played)
    read = partial(pieces, decode=decoder(store, "demo"))
    console = Console(file=io.StringIO(), width=110)
    stored = Episodes("run:demo@6", "demo, step 6", pairs, read)
    console.print(show(stored, 2, by_episode(pairs)))
    assert isinstance(console.file, io.StringIO)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines())


def test_a_common_system_prompt_is_printed_once(store: Store) -> None:
    text = text_of(store, conversation(0, SYSTEM, "41+58?"), conversation(1, SYSTEM, "1+1?"))
    assert text.count("Use the tools.") == 1
    assert text.count(SAME) == 2
    assert f"     read | {SAME}\n          | 41+58?<|im_end|>" in text
    assert text.index("Use the tools.") < text.index("chain 0") < text.index("41+58?")


def test_different_system_prompts_stay_in_their_episodes(store: Store) -> None:
    other = SYSTEM.replace("tools.", "tools. Today is Monday.")
    text = text_of(store, conversation(0, SYSTEM, "41+58?"), conversation(1, other, "1+1?"))
    assert text.count("Use the tools.") == 2
    assert SAME not in text


def test_a_single_episode_keeps_its_system_prompt(
    store: Store,
) -> None:
    assert SAME not in text_of(store, conversation(0, SYSTEM, "41+58?"))
    assert SAME not in text_of(store, conversation(0, "", "41+58?"), conversation(1, "", "1+1?"))


def test_the_number_of_matches_is_shown(store: Store) -> None:
    stored = read_step(store, "demo", 6)
    conditions = Conditions(below=0.6, ending="terminal")
    console = Console(file=io.StringIO(), width=110)
    console.print(show(stored, 1, matching(stored, conditions)))
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert "demo, step 6: 4 episodes, 3 scored, mean reward 0.500, 1 matching" in text
    assert re.findall(r"chain (\d);", text) == ["2"]


def shown(*pairs: Pair) -> str:
    console = Console(file=io.StringIO(), width=110)
    stored = Episodes("run:demo@7", "demo, step 7", pairs, read)
    console.print(show(stored, len(pairs), first(by_episode(pairs), "worst", 1)))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def read(_: Trajectory) -> list[Piece]:
    return [Piece("read", "What?")]


def team(name: str, planner: float | None, searcher: float | None) -> list[Pair]:
    """An episode of a planner and two searchers."""
    pairs: list[Pair] = []
    for agent in ("planner", "searcher", "searcher/2"):
        reward = planner if agent == "planner" else searcher
        turn = turns.turn([1], {2: -0.5})
        one = turns.trajectory(turn, name=f"{name}-{agent}", agent=agent, episode=name)
        pairs.append((one, None if reward is None else Scored(one.id, {}, (), reward)))
    return pairs


def test_an_episode_of_several_speakers_counts_once() -> None:
    text = shown(*team("a", 1.0, 0.5), *team("b", 0.5, 0.0), *team("c", None, None))
    assert "demo, step 7: 3 episodes, 2 scored, mean reward 0.500" in text
    assert "chain 0; planner; not scored;" in text


def test_a_single_speaker_is_not_named() -> None:
    text = shown(team("a", 1.0, 0.5)[0])
    assert "planner" not in text and "1 episode, 1 scored" in text


def test_a_speaker_without_a_reply_is_not_shown() -> None:
    (planner, scored), *searchers = team("a", 1.0, 0.5)
    text = shown((replace(planner, turns=()), scored), *searchers)
    assert "chain 0; planner" not in text and "chain 0; searcher/2" in text
