"""Text adventures: treasure hunts of TextWorld, compiled to files that its Z-machine plays."""

from __future__ import annotations

import asyncio
import json
import os
import re
import tempfile
import warnings
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from agentfly_core.authoring.environment import Environment
from agentfly_core.authoring.tool import ToolError
from agentfly_core.records.trajectory import Problem

GAMES = Path(".agentfly/textworld")
"""Where compiled games lie."""
VERBS = ("go", "take", "drop", "open", "close", "put", "insert", "lock", "unlock", "eat")
LOOKS = ("look", "inventory", "examine")
WON, LOST = "*** The End ***", "*** You lost! ***"
LACKING = (
    "TextWorld needs the package textworld: pip install textworld (the extra `textworld`; it "
    "installs jericho, which is under the GPL)"
)
_COMMAND = re.compile(rf"({'|'.join((*VERBS, *LOOKS))})( (?!then\b)[a-z0-9'-]+)*")


class NoQuest(ValueError):
    """Among these rooms there is no such way."""


@dataclass(frozen=True, slots=True)
class Hunt:
    """A treasure hunt in `rooms` without doors: `length` - 1 moves lead from where it begins to the
    thing, which is then taken. Another thing that lies about must not be. `Hunt(4711, 6, 4)`.
    """

    seed: int
    rooms: int
    length: int

    def generated(self) -> Any:
        """What TextWorld makes of it; raises NoQuest where it finds none."""
        textworld, hunts, knowledge = _textworld()
        options = textworld.GameOptions()
        options.kb, options.seeds, options.nb_rooms = knowledge, self.seed, self.rooms
        options.quest_length = self.length
        options.grammar.only_last_action = True  # or the task would tell the way
        try:
            return hunts.make_game("easy", options)
        except textworld.generator.QuestGenerationError as error:
            raise NoQuest(f"{self}: {error}") from None

    def compiled(self) -> Path:
        """The file of its game, which is made where there is none, in a few seconds."""
        textworld, _, _ = _textworld()
        version = textworld.__version__
        path = GAMES / f"{version}-{self.rooms}-{self.length}-{self.seed}.z8"
        if path.exists():
            return path
        GAMES.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=GAMES) as folder:
            options = textworld.GameOptions()
            options.path = f"{folder}/game.z8"
            os.replace(textworld.generator.compile_game(self.generated(), options), path)
        return path

    def machine(self) -> Any:
        """A Z-machine with its game, which has to be reset."""
        return _jericho().FrotzEnv(str(self.compiled()), seed=0)

    def beginning(self) -> str:
        """What is seen at first."""
        machine = self.machine()
        text, _ = machine.reset()
        machine.close()
        return told(text[text.index("-= ") :])


class TextWorld(Environment):
    """A game of TextWorld (Côté et al., arXiv 1806.11532) that a problem's facts name:

        {"game": {"seed": 4711, "rooms": 6, "length": 4},
         "objective": "Your objective is to retrieve the key from the floor of the sauna."}

    `won` says whether the thing was taken, `over` whether nothing can be done any more. It needs
    the package textworld (the extra `textworld`), which installs jericho, under the GPL. Of what
    the games understand, its verb takes what acts in them: nothing that saves, restores or ends a
    game.
    """

    notice: ClassVar[str] = (
        "the package textworld installs jericho, which is under the GNU General Public License."
    )

    async def reset(self, problem: Problem) -> None:
        """Begin the game; raises KeyError without a fact, and ValueError for one with another
        objective, as another version of TextWorld may make it.
        """
        await self.close()
        hunt, objective = Hunt(**problem.facts["game"]), problem.facts["objective"]
        self._machine = await asyncio.to_thread(hunt.machine)
        if objective not in " ".join(self._begin().split()):
            raise ValueError(
                f"{hunt} does not ask: {objective!r}. Prepare the problems again, with this "
                "version of textworld."
            )

    def do(self, command: str) -> str:
        """Do something, `take red key`, and return what is told then; raises ToolError for what is
        no command.
        """
        asked = " ".join(command.split()).lower()
        if not _COMMAND.fullmatch(asked):
            raise ToolError(
                f"A command begins with {', '.join((*VERBS, *LOOKS))} and has no more than words."
            )
        self._done.append(asked)
        text, *_ = self._machine.step(asked)
        self.won, self.over = WON in text, WON in text or LOST in text
        return told(text)

    async def snapshot(self) -> bytes:
        """What was done."""
        return json.dumps(self._done).encode()

    async def restore(self, snapshot: bytes) -> None:
        """Begin anew and do it again."""
        self._begin()
        for command in json.loads(snapshot):
            self.do(command)

    async def close(self) -> None:
        """Leave the game."""
        if hasattr(self, "_machine"):
            self._machine.close()
            del self._machine

    def _begin(self) -> str:
        self._done: list[str] = []
        self.won = self.over = False
        text, _ = self._machine.reset()
        return str(text)


def told(text: str) -> str:
    """What a game says, without its status line and empty ones, and without its last question."""
    said = text.partition("\n>")[0].partition("Would you like to RESTART")[0]
    lines = (" ".join(line.split()) for line in said.splitlines())
    return "\n".join(line for line in lines if line)


@cache
def _textworld() -> tuple[Any, Any, Any]:
    """TextWorld, its treasure hunts, and what these know of the world."""
    try:
        import textworld
        from textworld.challenges.tw_treasure_hunter import treasure_hunter
        from textworld.generator.data import KnowledgeBase
    except ImportError as error:
        raise ValueError(f"{LACKING}: {error}") from None
    return textworld, treasure_hunter, KnowledgeBase.load(treasure_hunter.KB_PATH)


@cache
def _jericho() -> Any:
    """The Z-machine."""
    try:
        import jericho
    except ImportError as error:
        raise ValueError(f"{LACKING}: {error}") from None
    # it keeps no score of games that it does not know
    warnings.simplefilter("ignore", jericho.UnsupportedGameWarning)
    return jericho
