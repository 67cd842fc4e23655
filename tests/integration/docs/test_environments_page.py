"""The examples of docs/how-to/environments.md work."""

import re

from agentfly_core.config import loading
from agentfly_core.config.import_path import load
from agentfly_core.experiment import checks
from agentfly_core.records.trajectory import Ending, Observation, Problem, Score
from agentfly_core.rewards.environment_return import environment_return
from agentfly_core.testing.episodes import (
    episode_specs,
    play,
    play_all,
    rollout_spec,
    saying,
    scripted,
)
from tests.support.project import ROOT

PAGE = (ROOT / "docs/how-to/environments.md").read_text()
GUESSES = ("<guess number=50>", "<guess number=70>", "<guess number=62>", "62")


def block(language, number=0):
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)[number]


async def test_the_game_of_the_page_is_valid_and_playable(tmp_path, monkeypatch):
    (tmp_path / "my_game.py").write_text(block("python"))
    (tmp_path / "game.yaml").write_text(block("yaml"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    settings = loading.read("game.yaml").settings
    checks.check(settings)

    game, limit = load("my_game:Game"), settings.environments["my_game:Game"].limit
    rules = rollout_spec(
        load("my_game:guess"), rewards=[load("my_game:few_guesses")], limits={game: limit}
    )
    problems = episode_specs(Problem("sixty-two", "Guess!", {"secret": 62}), chains=3)
    sampler = scripted(saying(*GUESSES))
    episodes, _, measured = await play_all(problems, rules, sampler)
    assert {episode.ending for episode in episodes} == {Ending.NO_TOOL_CALLS}
    answers = tuple(Observation("guess", text) for text in ("higher", "lower", "found"))
    assert [episode.observations for episode in episodes] == [answers] * 3
    assert [episode.observed for episode in episodes] == [{"few_guesses": Score(1 / 3)}] * 3
    assert (measured["resources/Game/started"], measured["resources/Game/closed"]) == (3, 0)
    episodes, _, _ = await play_all(problems, rules, scripted(saying(*["62"] * 20)))
    assert [episode.observed for episode in episodes] == [{"few_guesses": Score(0.0)}] * 3


async def test_the_corridor_has_states_and_rewards_for_each_step(tmp_path, monkeypatch):
    (tmp_path / "my_corridor.py").write_text(block("python", 1) + block("python", 2))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    rules = rollout_spec(
        load("my_corridor:walk"),
        rewards=[load("my_corridor:at_the_door")],
        limits={load("my_corridor:Corridor"): 1},
    )
    replies = scripted(saying("<walk steps=2>", "<walk steps=1>", "Here."))
    ((episode,), _, _) = await play_all(episode_specs(Problem("door", "Go!", {})), rules, replies)
    assert [turn.state for turn in episode.turns] == ["0", "2", "3"]
    assert episode.observed == {"at_the_door": Score(1.75, per_turn=(0.5, 0.25, 0.0))}

    strolled = await play(
        ["<stroll steps=2>", "<stroll steps=1>", "Here."], load("my_corridor:stroll")
    )
    assert await environment_return.score(strolled, {}) == Score(0.75, per_turn=(0.5, 0.25, 0.0))
