"""The memory of a policy: a folder of files that agents can read during episodes.

In each training step, the function at the import path `agent.remembers` fills a new folder.
"""

from pathlib import Path

from agentfly_core.store.artifact import Pointer
from agentfly_core.store.store import Store

MEMORY = "memory"
"""The key of a memory's digest in the recorded inputs of a policy or of episodes.

The memory's folder within a training step has the same name.
"""
FILES = "files"
"""The name of the folder with a memory's files, inside the memory's artifact."""


def memory_of(store: Store, policy: Pointer) -> Pointer | None:
    """Return the memory of a policy (a folder of files that agents read during episodes).

    Return None for a policy without memory, such as a base model.
    """
    digest = store.resolve(policy).manifest["inputs"].get(MEMORY)
    return Pointer(f"{policy.uri.rpartition('/')[0]}/{MEMORY}", digest) if digest else None


def memory_folder(store: Store, memory: Pointer) -> Path:
    """Return the local folder with the files that agents read during episodes."""
    folder = store.open(memory) / FILES
    folder.mkdir(exist_ok=True)  # object storage keeps no empty folder
    return folder
