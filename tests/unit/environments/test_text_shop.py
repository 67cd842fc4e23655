"""The text shop, its pages, and what a purchase in it earns."""

from __future__ import annotations

import pytest

from agentfly_core.authoring.tool import ToolError
from agentfly_core.environments.text_shop import Purchase, TextShop
from agentfly_core.environments.text_shop_catalogue import Catalogue, Product, catalogue
from agentfly_core.records.trajectory import Ending, Problem, Score, ToolCall, Trajectory
from agentfly_core.rewards.text_shop import Wish, fit, purchase
from agentfly_core.testing.episodes import episode_specs, play_all, rollout_spec, scripted
from agentfly_core.tools.text_shop import browse, buy, view
from tests.support.tasks import saying_calls
