"""Which settings a stage's output depends on."""

from agentfly_core.experiment.keys import StageKeys
from agentfly_core.store.artifact import Pointer
from tests.support.experiments import experiment
from tests.support.problems import schedule_of

MODEL, DATA, SHOWN = (Pointer(f"artifacts/{name}", name) for name in ("model", "data", "shown"))
EXACT = "agentfly_core.rewards.exact:exact"
WARM_START = {"demonstrations": "agentfly_core.recipes.planner_executor.dataset:policy"}


def stages(tmp_path, **changes):
    """The key of each stage."""
    settings = experiment(tmp_path, **{"warm_start": WARM_START, **changes}).settings
    drawn = schedule_of(settings).first_round(1, False).drawn(schedule_of(settings))
    targets = [
        StageKeys(settings).demonstrations(MODEL, DATA, {}),
        StageKeys(settings).warm_start(MODEL, SHOWN, 1),
        StageKeys(settings).evaluation(MODEL, DATA, "test", 0, {}),
        StageKeys(settings).rollout("demo", MODEL, DATA, 1, 0, drawn, {}),
        StageKeys(settings).scored([Pointer("runs/demo/steps/000001/rollout-000", "played")]),
        StageKeys(settings).policy("demo", MODEL, SHOWN, 1),
    ]
    return {target.stage: target.key for target in targets}


def changed(tmp_path, before, **after):
    old, new = stages(tmp_path, **before), stages(tmp_path, **after)
    return {stage for stage in old if old[stage] != new[stage]}


def test_a_reward_weight_changes_only_score_keys(tmp_path):
    after = {"rewards": {EXACT: {"weight": 0.5, "timeout": 9.0}}}
    before = {"rewards": {EXACT: {"timeout": 9.0}}}
    assert changed(tmp_path, before, **after) == {"score"}
    assert changed(tmp_path, {"rewards": {EXACT: 1.0}}, rewards={EXACT: 0.5}) == {"score"}


def test_demonstrations_and_warm_start_keys_ignore_rewards(tmp_path):
    more = {"rewards": {EXACT: 1.0, "agentfly_core.rewards.format:tool_format": 0.5}}
    goal = {"evaluate": {"goal": EXACT}}
    assert changed(tmp_path, goal, **more, **goal) == {"evaluate", "rollout", "score"}


def test_demonstration_keys_of_a_mixture_ignore_rewards(tmp_path):
    def tasks(rewards, goal):
        data = {"use": "tests.support.problems:clean", "train": 64, "test": 4}
        sums = {"data": data, "rewards": rewards, "goal": goal, "warm_start": WARM_START}
        return {"data": {}, "rewards": {}, "tasks": {"sums": sums}, "warm_start": {"episodes": 8}}

    before = tasks({EXACT: 1.0}, EXACT)
    after = tasks({EXACT: 0.5, "agentfly_core.rewards.format:tool_format": 0.5}, EXACT)
    assert changed(tmp_path, before, **after) == {"evaluate", "rollout", "score"}


def test_demonstration_keys_ignore_the_fine_tuning(tmp_path):
    after = {"warm_start": {**WARM_START, "learning_rate": 1e-4, "rounds": 2, "batch": 8}}
    assert changed(tmp_path, {}, **after) == {"warm_start"}


def test_held_out_episodes_depend_on_the_dtype_of_sampling(tmp_path):
    assert changed(tmp_path, {}, dtype="bfloat16") == {"warm_start", "evaluate", "update"}
