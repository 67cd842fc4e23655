"""Read the chats in a file as demonstrations of a warm start."""

from collections.abc import Mapping
from pathlib import Path

from agentfly_core.config.parts import WarmStart
from agentfly_core.datasets.chat_files import ChatRow
from agentfly_core.datasets.chats import Messages
from agentfly_core.experiment.task import Task
from agentfly_core.pipeline.playing import rollout_spec
from agentfly_core.pipeline.produce import produce
from agentfly_core.pipeline.recorded_chats import ChatPlayer, recorded
from agentfly_core.pipeline.workers.samplers import tokenizer_of
from agentfly_core.records.dataset import spaced_alike, split
from agentfly_core.records.messages import plain
from agentfly_core.records.parquet import EPISODES, HELD_OUT, write_trajectories
from agentfly_core.records.trajectory import Message
from agentfly_core.store.artifact import Artifact, ArtifactKey
from agentfly_core.store.store import Store
from agentfly_core.system.formats.hashing import digest


def read_chats(
    store: Store,
    settings: WarmStart,
    target: ArtifactKey,
    whole: Task,
    model: Artifact,
    data: Artifact,
) -> Artifact:
    """Publish the chats in the file of a warm start as demonstrations.

    Chats about validation or test problems of `data` are held out: the warm start does not train on
    these chats, but measures their loss. Raises ValueError if too many rows cannot be used, or if
    no chat is left for training.
    """

    def make(folder: Path) -> Mapping[str, float]:
        tokenizer = tokenizer_of(store, model)
        # the mapping of several tasks is empty, because an experiment with `tasks` cannot imitate a
        # file
        chats, bad = recorded(settings, ChatPlayer(rollout_spec(whole, {}, tokenizer), tokenizer))
        folder_of_data = store.open(data)
        problems = [p for name in ("validation", "test") for p in split(folder_of_data, name)]
        held_out = {_prompt(p.messages or (Message("user", p.prompt),)) for p in problems}
        measured = [t for row, t in chats if not held_out.isdisjoint(_questions(row))]
        trained = [t for row, t in chats if held_out.isdisjoint(_questions(row))]
        if not trained:
            raise ValueError(
                f"{settings.demonstrations}: all {len(chats)} chats are about problems of the "
                "test or validation split, so none is left for training. Lower data.test or "
                "data.validation, or add chats about other problems."
            )
        write_trajectories(folder / EPISODES, trained)
        if measured:
            write_trajectories(folder / HELD_OUT, measured)
        counts = {"demonstrations": len(trained), "held_out": len(measured), "left_out": bad}
        return {name: float(count) for name, count in counts.items()}

    return produce(store, target, make)


def _questions(row: ChatRow) -> set[str]:
    """Return the digests of all prompts in a chat. A prompt consists of the messages before a
    reply.
    """
    return {_prompt(reply.messages[:-1]) for reply in row.replies}


def _prompt(messages: Messages) -> str:
    """Return a digest of the messages in a prompt.

    System messages are ignored, because a chat and a dataset problem with the same question may
    have different system messages.
    """
    texts = [[role, spaced_alike(text)] for role, text in map(plain, messages) if role != "system"]
    return digest(texts)
