"""The memory with which a policy plays. It is a folder of files, which the function that
`agent.remembers` names fills in each step.
"""

from pathlib import Path

from agentfly_core.store.artifact import Pointer
from agentfly_core.store.store import Store

MEMORY = "memory"
"""Name of the memory in two places: among the inputs of a policy or of episodes, and as a folder of
a step.
"""
FILES = "files"
"""Name of the folder with the remembered files. It is in the artifact of a memory, beside the
manifest.
"""


def memory_of(store: Store, policy: Pointer) -> Pointer | None:
    """Return the memory of a policy, or None for a policy without memory, such as a base model."""
    digest = store.resolve(policy).manifest["inputs"].get(MEMORY)
    return Pointer(f"{policy.uri.rpartition('/')[0]}/{MEMORY}", digest) if digest else None


def memory_folder(store: Store, memory: Pointer) -> Path:
    """Return the local folder with the files of a memory."""
    folder = store.open(memory) / FILES
    folder.mkdir(exist_ok=True)  # object storage keeps no empty folder
    return folder
