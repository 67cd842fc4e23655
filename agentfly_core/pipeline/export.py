"""Export a policy as a directory for other programs. The directory contains a README, and the chat
template that was used in training if this template is available in Jinja.
"""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

from agentfly_core.config.reference import run_policy
from agentfly_core.experiment.memory import MEMORY, memory_folder, memory_of
from agentfly_core.experiment.run_policies import of_run
from agentfly_core.models.adapter_artifact import FILE, folders, shape_of
from agentfly_core.models.known import end_tokens
from agentfly_core.models.policy_page import PolicyPage
from agentfly_core.runs.run import known_run, recorded_settings
from agentfly_core.store.manifest import MANIFEST
from agentfly_core.store.store import Store
from agentfly_core.system.formats.json_value import JSON
from agentfly_core.system.process import own_mark

OURS = (MANIFEST, FILE, "metrics.json", "probe.json", "timings.parquet")
"""Files in a policy's folder that other programs do not need."""
BASE = "base"
"""The subfolder of an exported adapter that contains the base model."""


def export(store: Store, reference: str, folder: Path) -> None:
    """Write the policy of a run into a new folder. `reference` is NAME or NAME@STEP, with or
    without the prefix `run:`.

    If the policy is an adapter, its base model is written to the subfolder `base`. If the policy
    has a memory (a folder that agents read as `Episode.memory`), the memory is copied to the
    subfolder `memory`. Raises ValueError if the policy is missing or `folder` exists.
    """
    if folder.exists():
        raise ValueError(f"The folder {folder} already exists; remove it, or name a new folder.")
    where = run_policy(reference)
    named = of_run(store, where, "policy")
    settings = recorded_settings(known_run(store, named.run))
    policy, base = folders(store, named.policy)

    # written next to the folder, because a rename is atomic only within one file system
    part = folder.with_name(f".tmp-{folder.name}-{own_mark()}")
    part.mkdir(parents=True)
    try:
        from transformers import AutoTokenizer  # takes seconds

        tokenizer = AutoTokenizer.from_pretrained(policy, trust_remote_code=False)
        template = settings.template.make(tokenizer=tokenizer)
        jinja: str | None = getattr(template, "jinja", None)
        stop = sorted({*getattr(template, "stop_tokens", ()), *end_tokens(tokenizer)})
        _copy(policy, part, jinja, stop)
        if base:
            _copy(base, part / BASE, jinja, stop)
        if memory := memory_of(store, named.policy):
            shutil.copytree(memory_folder(store, memory), part / MEMORY)
        shape = shape_of(store, named.policy)
        rank = shape.rank if shape else None
        tools = [*dict.fromkeys(tool.use for task in settings.each.values() for tool in task.tools)]
        PolicyPage(
            reference=str(where),
            policy=named.policy,
            agent=settings.agent,
            template=settings.template,
            tools=tools,
            dtype=settings.dtype,
            rank=rank,
            templated=bool(jinja),
            stop=stop,
        ).write(part / "README.md")
        part.rename(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _copy(source: Path, folder: Path, jinja: str | None, stop: Sequence[int]) -> None:
    """Copy the files of a model. Add the chat template and the end tokens that were used in
    training.
    """
    folder.mkdir(exist_ok=True)
    for path in source.iterdir():
        if path.is_file() and path.name not in OURS:
            shutil.copyfile(path, folder / path.name)  # without its permissions
    # the end tokens in the model's files may differ from the end tokens of training
    if stop and (generation := folder / "generation_config.json").is_file():
        _rewrite(generation, eos_token_id=list(stop))
    if jinja is None:
        return
    (folder / "chat_template.jinja").write_text(jinja, encoding="utf-8")
    # removed, because a second template in this file could differ from `chat_template.jinja`
    if (settings := folder / "tokenizer_config.json").is_file():
        _rewrite(settings, chat_template=None)


def _rewrite(path: Path, **values: JSON) -> None:
    """Update a JSON file with `values`. Keys with the value None are removed from the file."""
    changed = json.loads(path.read_text(encoding="utf-8")) | values
    kept = {key: value for key, value in changed.items() if key not in values or value is not None}
    path.write_text(json.dumps(kept, indent=2, ensure_ascii=False), encoding="utf-8")
