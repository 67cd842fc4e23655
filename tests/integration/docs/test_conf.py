"""The experiments that are shipped."""

import pytest

from agentfly_core.config import loading
from agentfly_core.experiment import checks
from agentfly_core.sandbox.backends import Unavailable
from tests.support.project import ROOT

EXPERIMENTS = loading.names(ROOT / "conf")
CALCULATOR = "agentfly_core.tools.calculator:calculator"
SHOP_SEARCH = "agentfly_core.recipes.shop.tools:search"


@pytest.fixture(autouse=True)
def in_the_project(monkeypatch):
    monkeypatch.chdir(ROOT)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_shipped_experiments_and_their_parts_are_valid(name):
    try:
        checks.check(loading.read(name).settings)
    except Unavailable as error:
        pytest.skip(str(error))


def test_the_gpu_preset_has_the_settings_of_the_paper():
    settings = loading.read("qwen2.5-3b-math").settings
    assert (settings.rollout.problems, settings.rollout.group_size, settings.agent.max_turns) == (
        64,
        8,
        8,
    )
    assert (settings.update.learning_rate, settings.algorithm.settings["kl"]["weight"]) == (
        5e-7,
        0.001,
    )


def test_the_gpu_preset_asks_for_the_form_that_its_reward_reads():
    settings = loading.read("qwen2.5-3b-math").settings
    (task,) = checks.check(settings).values()
    (reward,) = task.rewards
    assert reward.name == "math"
    assert {"answer", r"\boxed{}"} <= {*settings.agent.system.replace(".", "").split()}


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            "algorithm.agregation=token_mean",
            "GRPO has no setting 'agregation'. Did you mean 'aggregation'",
        ),
        ("algorithm={use: rft, kl: {use: loss}}", "RFT has no setting 'kl'"),
        ("algorithm=grop", r"Got 'grop', [^']*Did you mean 'grpo'\?$"),
        (
            "algorithm.policy_loss={use: gspo, dual: 3}",
            r"policy_loss.gspo.dual: Extra inputs are not permitted",
        ),
        ("algorithm.policy_loss=gpso", "does not match any of the expected tags: 'clip', 'gspo'"),
        ("algorithm.kl={use: loss, kind: k1}", "Input should be 'k2', 'k3' or 'abs'"),
        ("data.digit=2", "arithmetic has no setting 'digit'"),
        ("tools=[agentfly_core.tools.calculator:calculater]", "Did you mean 'calculator'"),
        ("tools=[agentfly_core.rewards.exact:exact]", "expected Tool"),
        ("agent.use=agentfly_core.agents.tool_lop:tool_loop", "cannot be imported"),
        (
            "agent.use=agentfly_core.rollout.episode:RolloutSpec",
            "is no agent, expected an `async def` function that",
        ),
        (
            "agent.use=agentfly_core.config.episodes:SPLITS",
            "is a tuple, expected a function or a class",
        ),
        (
            "environments={agentfly_core.tools.answer:answer: 8}",
            "answer is no environment, expected a subclass",
        ),
        (
            "algorithm.use=agentfly_core.tools.answer:answer",
            "answer is not an algorithm: it lacks",
        ),
        (
            "algorithm.use=agentfly_core.datasets.arithmetic:arithmetic",
            "arithmetic is not an algorithm",
        ),
        (
            f"tools=[{SHOP_SEARCH}]",
            "needs a Shop, but `environments` has no limit",
        ),
        (f"tools=[{CALCULATOR}, {CALCULATOR}]", "2 tools have the name 'calculator'"),
        ("data.operators=7", r"arithmetic: operators: Input should be a valid string \(got 7\)"),
        (
            "data.use=agentfly_core.datasets.files:files",
            "files has no default for train_file",
        ),
        (
            "data.use=agentfly_core.inference.templates.chatml:Hermes",
            "Hermes has no parameter 'seed'",
        ),
        (
            "data.use=agentfly_core.tools.answer:answer",
            "Got a Tool, expected a function or a class",
        ),
        (
            "template.show_tools=[1]",
            r"Hermes: show_tools: Input should be a valid boolean \(got \[1\]\)",
        ),
        (
            "warm_start.settings.spoilt=half",
            r"calculator: spoilt: Input should be a valid number.* \(got 'half'\)",
        ),
        ("rollout.problems=5000", "needs 5000 problems, but data.train is 4096"),
        ("update.betas=[0.9, 3]", r"update.betas.1: Input should be less than 1 \(got 3\)"),
    ],
)
def test_a_part_that_is_not_there_is_refused_before_any_work(override, message):
    with pytest.raises(ValueError, match=message):
        checks.check(loading.read("quickstart", [override]).settings)


def test_a_broken_user_module_is_named_with_its_error(tmp_path, monkeypatch):
    (tmp_path / "my_broken_tools.py").write_text("from agentfly_core.authoring.tool import toll\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(
        ValueError,
        match=r"'my_broken_tools' .*cannot be imported: .*ImportError: cannot import name 'toll'",
    ):
        checks.check(loading.read("quickstart", ["tools=[my_broken_tools:mine]"]).settings)


def test_each_site_can_be_read():
    for path in (ROOT / "conf/site").glob("*.yaml"):
        assert loading.site(path.stem).name == path.stem
