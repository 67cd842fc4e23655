"""The memory with which a policy plays: a folder that the function `agent.remembers` fills in each
step.
"""

from pathlib import Path

from agentfly_core.store.artifact import Pointer
from agentfly_core.store.store import Store

MEMORY = "memory"
"""Name of the memory among the inputs of a policy and of episodes, and of its folder in a step."""
FILES = "files"
"""Folder of the remembered files in the artifact, beside its manifest."""


def memory_of(store: Store, policy: Pointer) -> Pointer | None:
    """Return the memory of a policy; None for a policy without memory, such as a base model."""
    digest = store.resolve(policy).manifest["inputs"].get(MEMORY)
    return Pointer(f"{policy.uri.rpartition('/')[0]}/{MEMORY}", digest) if digest else None


def memory_folder(store: Store, memory: Pointer) -> Path:
    """Return the local folder of the memory's files."""
    folder = store.open(memory) / FILES
    folder.mkdir(exist_ok=True)  # object storage keeps no empty folder
    return folder
