"""The store that a command or a flow uses."""

from agentfly_core.config import loading
from agentfly_core.store.store import Store
from flows.local.state_dirs import main_workspace, settle, state_of


def store_at(uri: str) -> Store:
    """Open a store by its path or s3:// uri. If `uri` is empty, open the site's store."""
    where = uri or loading.site("local").store
    if "://" not in where:
        where = str(main_workspace() / where)
        # No folder is made: `config` works in a read-only project.
        return Store.at(where, state_of() / "cache")
    return Store.at(where, settle().state / "cache")
