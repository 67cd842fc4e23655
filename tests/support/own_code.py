"""An author's folder with modules of their own, which tests edit."""

import importlib
import sys
from collections.abc import Iterator

from agentfly_core.experiment import own_modules, user_code
from agentfly_core.experiment.keys import StageKeys
from agentfly_core.store.artifact import ArtifactKey, Pointer
from tests.support.experiments import experiment

PROJECT = {
    "own_tools": "from agentfly_core import tool\nfrom own_prices import PRICES\n\n"
    '@tool\nasync def lookup(key: str) -> str:\n    """Look."""\n    return PRICES[key]\n',
    "own_prices": "PRICES = {'tea': '3'}\n",
    "own_rewards": "from agentfly_core import Trajectory, reward\n\n"
    "@reward\ndef brief(trajectory: Trajectory) -> float:\n    return 1.0\n",
    "own_data": "from agentfly_core.datasets.arithmetic import arithmetic\n\n"
    "def problems(seed, train, validation, test):\n"
    "    return arithmetic(seed, train, validation, test)\n",
}
SETTINGS = {
    "data": {"use": "own_data:problems", "train": 8, "test": 4},
    "tools": ["own_tools:lookup"],
    "rewards": {"own_rewards:brief": 1.0},
}
POLICY, DATA = Pointer("artifacts/p", "9f2c"), Pointer("artifacts/d", "77b0")


def author_folder(tmp_path, monkeypatch) -> Iterator:
    """The folder of the author, where commands are given, while a test lasts."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    for name, text in PROJECT.items():
        edit(name, text)
    yield tmp_path
    forget()


def edit(name, text):
    """Another text of a module, as the next process imports it."""
    with open(f"{name}.py", "w") as file:
        file.write(text)
    forget()


def forget():
    """Remove the modules of the folder from the import cache."""
    for name in [name for name in sys.modules if name.startswith("own_")]:
        del sys.modules[name]
    own_modules._package.cache_clear()
    importlib.invalidate_caches()


def here(tmp_path, **settings):
    """The experiment as it is now."""
    made = experiment(tmp_path, **{**SETTINGS, **settings})
    return made.on(made.settings.with_code(user_code.code_of(made.settings, made.tasks)))


def stage_keys(settings):
    rollouts = [ArtifactKey("runs/demo/steps/000001/rollout-000", "rollout", "", {})]
    made = [Pointer(rollouts[0].uri, "9f2c")]
    return {
        "prepare": StageKeys(settings).prepare().key,
        "demonstrate": StageKeys(settings).demonstrations(POLICY, DATA, {}).key,
        "rollout": StageKeys(settings).rollout("demo", POLICY, DATA, 1, 0, [], {}).key,
        "evaluate": StageKeys(settings).evaluation(POLICY, DATA, "test", 0, {}).key,
        "score": StageKeys(settings).scored(made).key,
        "update": StageKeys(settings).policy("demo", POLICY, made[0], 1).key,
    }
