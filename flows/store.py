"""The store that a command or flow names."""

from agentfly_core.config import loading
from agentfly_core.store.store import Store
from flows.local.state_dirs import main_workspace, settle, state_of


def store_at(uri: str) -> Store:
    """A store by path or s3:// uri; the site's own when empty."""
    where = uri or loading.site("local").store
    if "://" not in where:
        where = str(main_workspace() / where)
        # No folder is made: `config` works in a read-only project.
        return Store.at(where, state_of() / "cache")
    return Store.at(where, settle().state / "cache")
