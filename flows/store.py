"""Open the store (the folder or bucket of all artifacts) that a command or a flow uses."""

from agentfly_core.config import loading
from agentfly_core.store.store import Store
from flows.local.state_dirs import main_workspace, settle, state_of


def store_at(uri: str) -> Store:
    """Open the store at a path or an s3:// uri.

    If `uri` is empty, use the setting `store` of this machine (the site `local`).
    """
    where = uri or loading.site("local").store
    if "://" not in where:
        where = str(main_workspace() / where)
        # `state_of` creates no folder, because `agentfly config` must work in a read-only project
        return Store.at(where, state_of() / "cache")
    return Store.at(where, settle().state / "cache")
