"""An experiment of two tasks that is only read: sums that are checked, and a shop."""

from typing import Any

from agentfly_core.config.experiment import Settings

EXACT = "agentfly_core.rewards.exact:exact"
BOUGHT = "agentfly_core.recipes.shop.rewards:bought"
SHOP = "agentfly_core.recipes.shop.environment:Shop"
SHOP_TOOLS = "agentfly_core.recipes.shop.tools"
SUMS: dict[str, Any] = {
    "weight": 2,
    "data": {"use": "agentfly_core.datasets.arithmetic:arithmetic", "train": 12, "test": 4},
    "tools": ["agentfly_core.tools.calculator:calculator", "agentfly_core.tools.answer:answer"],
    "rewards": {EXACT: 1.0, "agentfly_core.rewards.format:tool_format": 0.5},
    "goal": EXACT,
}
BUYING: dict[str, Any] = {
    "data": {"use": "agentfly_core.recipes.shop.dataset:shop", "train": 6, "test": 2},
    "agent": {"max_turns": 8, "system": "You shop."},
    "tools": [f"{SHOP_TOOLS}:search", f"{SHOP_TOOLS}:checkout"],
    "rewards": {BOUGHT: 1.0},
    "environments": {SHOP: 2},
}


def settings_with(
    sums: dict[str, Any] = SUMS, shop: dict[str, Any] = BUYING, **changes: Any
) -> Settings:
    """The mixture; three problems a step, of which two are sums."""
    settings = {
        "model": "nano:calculator",
        "tasks": {"sums": sums, "shop": shop},
        "agent": {"max_turns": 4, "max_tokens": 200, "max_model_len": 2000},
        "rollout": {"problems": 3, "group_size": 2, "shard": 4},
        "steps": 2,
    }
    return Settings.model_validate(settings | changes)
