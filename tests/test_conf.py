"""The experiments that are shipped."""

from pathlib import Path

import pytest

from agentfly_core import experiment

ROOT = Path(__file__).resolve().parent.parent
EXPERIMENTS = experiment.names(ROOT / "conf")


@pytest.fixture(autouse=True)
def in_the_project(monkeypatch):
    monkeypatch.chdir(ROOT)


def test_the_experiments_that_the_readme_names_are_there():
    assert {"quickstart", "shop", "smollm2-calculator", "qwen2.5-3b-code"} <= set(EXPERIMENTS)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_shipped_experiment_is_valid_and_all_its_parts_can_be_imported(name):
    experiment.check(experiment.read(name).science)


def test_the_gpu_preset_has_the_settings_of_the_paper():
    science = experiment.read("qwen2.5-3b-code").science
    assert (science.rollout.problems, science.rollout.group_size, science.agent.max_turns) == (64, 8, 8)
    assert (science.update.learning_rate, science.algorithm.settings["kl_weight"]) == (5e-7, 0.001)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("algorithm.clip_hihg=0.3", "GRPO has no setting 'clip_hihg'. Did you mean 'clip_high'"),
        ("algorithm.kl_kind=k1", "gradient vanishes"),
        ("data.digit=2", "arithmetic has no setting 'digit'"),
        ("tools=[agentfly_core.tools.calculator:calculater]", "Did you mean 'calculator'"),
        ("tools=[agentfly_core.rewards.exact:exact]", "expected a Tool"),
        ("agent.use=agentfly_core.agents.tool_lop:tool_loop", "Cannot import"),
    ],
)
def test_a_part_that_is_not_there_is_refused_before_any_work(override, message):
    with pytest.raises(ValueError, match=message):
        experiment.check(experiment.read("quickstart", [override]).science)


def test_each_site_can_be_read():
    for path in (ROOT / "conf/site").glob("*.yaml"):
        assert experiment.site(path.stem).name == path.stem
