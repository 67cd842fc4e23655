"""Policies that are adapters. Such a policy has a file adapter.json, which names its base model:
`{"base": {"uri": ..., "digest": ...}, "shape": {...}}`.
"""

from pathlib import Path
from typing import Any

from agentfly_core.config.experiment import Adapter
from agentfly_core.config.reference import LocalModel
from agentfly_core.models import model_config
from agentfly_core.models.type_names import PreTrainedConfig
from agentfly_core.store.artifact import Pointer
from agentfly_core.store.store import Store
from agentfly_core.system.files import write_json
from agentfly_core.system.formats.checksummed_json import Damaged

FILE = "adapter.json"


def remember(folder: Path, base: Pointer, shape: Adapter) -> None:
    """Write the file adapter.json of an adapter into a folder.

    The file has a pointer to the base model, and the shape of the adapter: rank, alpha and targets.
    """
    write_json(folder / FILE, {"base": base.to_json(), "shape": shape.model_dump(mode="json")})


def base_of(store: Store, policy: Pointer) -> Pointer | None:
    """Return the base model of an adapter, or None if the policy is a whole model."""
    adapter = _stored(store, policy)
    return Pointer.of(adapter["base"], f"{policy.uri}/{FILE}") if adapter else None


def shape_of(store: Store, policy: Pointer) -> Adapter | None:
    """Return the rank, alpha and targets of an adapter, or None if the policy is a whole model."""
    adapter = _stored(store, policy)
    return Adapter.model_validate(adapter["shape"]) if adapter else None


def _stored(store: Store, policy: Pointer) -> Any:
    match adapter := store.part(policy, FILE):
        case None | {"base": dict(), "shape": dict()}:
            return adapter
    raise Damaged(f"{policy.uri}/{FILE} is {adapter!r:.200}, expected the keys base and shape.")


def folders(store: Store, policy: Pointer) -> tuple[Path, Path | None]:
    """Return the local folder of a policy, and the local folder of its base model.

    The second folder is None if the policy is a whole model. Raises Damaged if the base model has
    changed.
    """
    base = base_of(store, policy)
    if base is None:
        return store.open(policy), None
    try:
        return store.open(policy), store.open(base)
    except Damaged as damage:
        raise Damaged(
            f"{policy.uri} is an adapter of the base model {base.uri} (digest "
            f"{base.digest[:12]}). One of the two cannot be read. {damage}"
        ) from damage


def config_of(store: Store, policy: Pointer) -> PreTrainedConfig | None:
    """Read the config of a policy. The config of an adapter is the config of its base model.

    Returns None if the policy is a chat service (external model API), which has no config.json.
    """
    folder, base = folders(store, policy)
    whole = base or folder
    if not (whole / "config.json").is_file():
        return None
    return model_config.of_reference(LocalModel(str(whole)))


def require_same_shape(store: Store, policy: Pointer, adapter: Adapter | None) -> None:
    """Check that a policy fits the setting `adapter`. A policy that is a whole model always fits.

    Raises ValueError if the policy is an adapter, and the setting is None or has another rank,
    alpha or targets.
    """
    own = shape_of(store, policy)
    if own and own != adapter:
        raise ValueError(
            f"Training continues with the adapter of {policy.uri}, so the setting `adapter` must "
            "equal the settings of that adapter: got "
            f"{adapter.model_dump(mode='json') if adapter else None}, expected "
            f"{own.model_dump(mode='json')}."
        )
