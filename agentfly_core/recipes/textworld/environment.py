"""The environment of treasure hunts in TextWorld. An interpreter, the Z-machine, runs the games."""

import asyncio
import json
import os
import re
import tempfile
import threading
import warnings
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from agentfly_core import Environment, Problem, ToolError, require_package

GAMES = Path(".agentfly/textworld")
"""The folder of compiled games."""
VERBS = ("go", "take", "look", "inventory", "examine")
_GENERATOR = threading.Lock()
"""A lock for TextWorld's generator, which is not thread-safe. Compiled games need no lock."""
_COMMAND = re.compile(rf"({'|'.join(VERBS)})( (?!then\b)[a-z0-9'-]+)*")
_TAKEN = re.compile("You pick up the (.+?) from the ground")


@dataclass(frozen=True, slots=True)
class Place:
    """The map of a world: its rooms, and the objects in them.

    Example: `Place({"bar": {"north": "sauna"}, ...}, {"old key": "sauna"}, "bar")`. `exits` has a
    dict for each room. The dict maps the direction of each exit to the next room. `lying` maps each
    object to its room. The player begins in the room `first`.
    """

    exits: Mapping[str, Mapping[str, str]]
    lying: Mapping[str, str]
    first: str

    def ways(self, start: str) -> dict[str, list[str]]:
        """Return the shortest path from the room `start` to each room: `{"sauna": ["north"]}`."""
        paths: dict[str, list[str]] = {start: []}
        waiting = deque([start])
        while waiting:
            room = waiting.popleft()
            for direction, leads in self.exits[room].items():
                if leads not in paths:
                    paths[leads] = [*paths[room], direction]
                    waiting.append(leads)
        return paths


@dataclass(frozen=True, slots=True)
class World:
    """A world that TextWorld generates from a seed: `World(4711, rooms=8, things=8)`.

    `rooms` is the number of rooms, and `things` the number of objects.
    """

    seed: int
    rooms: int
    things: int

    def place(self) -> Place:
        game = self._generated()
        named = {entity: about.name for entity, about in game.infos.items()}
        rooms = {named[room.id]: room for room in game.world.rooms}
        return Place(
            {
                name: {direction: named[leads.id] for direction, leads in room.exits.items()}
                for name, room in rooms.items()
            },
            {
                named[thing.id]: name
                for name, room in rooms.items()
                for thing in room.content
                if thing.type != "P"
            },
            named[game.world.player_room.id],
        )

    def compiled(self) -> Path:
        """Return the file of the compiled game. Compile the game only if the file does not exist.

        Compiling takes one or two seconds.
        """
        textworld, _ = _textworld()
        version = textworld.__version__
        # the world of a seed depends on the version of TextWorld
        path = GAMES / f"{version}-world-{self.rooms}-{self.things}-{self.seed}.z8"
        if path.exists():
            return path
        GAMES.mkdir(parents=True, exist_ok=True)
        # a folder in the same file system keeps the rename atomic, because another process may
        # compile the same game at the same time
        with tempfile.TemporaryDirectory(dir=GAMES) as folder:
            options = textworld.GameOptions()
            options.path = f"{folder}/game.z8"
            os.replace(textworld.generator.compile_game(self._generated(), options), path)
        return path

    def machine(self) -> Any:
        """Return an interpreter (Z-machine) of the game. Call `reset` before you send a command."""
        require_package("jericho", "textworld")
        import jericho

        # jericho warns about unknown games
        warnings.simplefilter("ignore", jericho.UnsupportedGameWarning)
        return jericho.FrotzEnv(str(self.compiled()), seed=0)

    def seen(self, way: Sequence[str]) -> str:
        """Return the description of the room at the end of a path from the first room."""
        machine = self.machine()
        text = _walked(machine, way)
        machine.close()
        return text

    def _generated(self) -> Any:
        textworld, knowledge = _textworld()
        generator, options = textworld.generator, textworld.GameOptions()
        options.kb, options.seeds, options.grammar.include_adj = knowledge, self.seed, True
        draws = options.rngs
        with _GENERATOR:
            # without doors, because VERBS cannot open them
            plan = generator.make_map(self.rooms, rng=draws["map"], possible_door_states=None)
            world = generator.World.from_map(plan, kb=knowledge)
            for _ in range(self.things):
                kind = knowledge.types.sample("o", draws["objects"], include_parent=True)
                name = generator.vtypes.get_new(kind, knowledge.types.count(world.state))
                thing = textworld.logic.Variable(name, kind)
                world.populate_with([thing], rng=draws["objects"])
            world.set_player_room(world.rooms[0])
            grammar = generator.make_grammar(options.grammar, rng=draws["grammar"])
            return generator.make_game_with(world, [], grammar)


class TextWorld(Environment):
    """A treasure hunt in TextWorld (Côté et al., arXiv 1806.11532).

    The facts of a problem are

        {"world": {"seed": 4711, "rooms": 8, "things": 8}, "way": ["north"],
         "seen": "-= Cozy Bar =-\\nYou've entered a bar...", "thing": "old key"}

    `way` has the moves from the first room of the world to the room in which the hunt starts.
    `seen` is the description of the room in which the hunt starts. `thing` is the object to take.
    The first command `take` ends the hunt: `over` becomes True. If this command takes the right
    object, `won` becomes True, too. Commands that save, restore or end a game are refused. The
    environment needs the package textworld (the extra `textworld`). The package textworld installs
    jericho, a package under the GPL.
    """

    notice: ClassVar[str] = (
        "the package textworld installs jericho, which is under the GNU General Public License."
    )

    async def reset(self, problem: Problem) -> None:
        """Begin the treasure hunt of a problem.

        Raises KeyError if the fact `world`, `way`, `thing` or `seen` is missing. Raises ValueError
        if the description of the starting room differs from the fact `seen`. This happens if the
        problem was prepared with a different version of TextWorld.
        """
        await self.close()
        facts = problem.facts
        world, self._way, self._thing = World(**facts["world"]), facts["way"], facts["thing"]
        self._machine = await asyncio.to_thread(world.machine)
        if (seen := self._begin()) != facts["seen"]:
            raise ValueError(
                f"The hunt in {world} starts at {seen!r}, expected {facts['seen']!r}. Prepare the "
                "problems again, with the installed version of textworld."
            )

    def do(self, command: str) -> str:
        """Execute a command such as `take red key`, and return the text of the game.

        Raises ToolError for a command with punctuation, or with a first word that is not in VERBS.
        """
        typed = " ".join(command.split()).lower()
        if not _COMMAND.fullmatch(typed):
            raise ToolError(
                f"A command begins with one of {', '.join(VERBS)} and contains only words, "
                "separated by spaces."
            )
        self._done.append(typed)
        text = plain_text(self._machine.step(typed)[0])
        self.over = typed.startswith("take")
        named = {*typed.split()} & {*self._thing.lower().split()}
        self.won = bool(named) and _TAKEN.findall(text) == [self._thing]
        return text

    async def snapshot(self) -> bytes:
        return json.dumps(self._done).encode()

    async def restore(self, snapshot: bytes) -> None:
        """Begin a new game, and execute the commands of a snapshot in this game."""
        self._begin()
        for command in json.loads(snapshot):
            self.do(command)

    async def close(self) -> None:
        if hasattr(self, "_machine"):
            self._machine.close()
            del self._machine

    def _begin(self) -> str:
        self._done: list[str] = []
        self.won = self.over = False
        return _walked(self._machine, self._way)


def _walked(machine: Any, way: Sequence[str]) -> str:
    text, _ = machine.reset()
    for direction in way:
        text, *_ = machine.step(f"go {direction}")
    return plain_text(text[text.index("-= ") :])


def plain_text(text: str) -> str:
    """Remove the status line and empty lines from a text of the game."""
    lines = (" ".join(line.split()) for line in text.partition("\n>")[0].splitlines())
    return "\n".join(line for line in lines if line)


@cache
def _textworld() -> tuple[Any, Any]:
    """Import TextWorld. Return the package, and the knowledge base of its treasure hunts."""
    require_package("textworld==1.7.0", "textworld")
    import textworld
    from textworld.challenges.tw_treasure_hunter import treasure_hunter
    from textworld.generator.data import KnowledgeBase

    with _GENERATOR:
        return textworld, KnowledgeBase.load(treasure_hunter.KB_PATH)
