"""Tasks of an experiment: own settings, shared settings, and refusals."""

import json
import re

import pytest

from agentfly_core.config import loading
from agentfly_core.config.episodes import Curriculum
from agentfly_core.config.experiment import Settings
from agentfly_core.config.tasks import quotas
from agentfly_core.experiment.checks import check
from tests.support.mixtures import BOUGHT, BUYING, EXACT, SHOP, SUMS, settings_with


def test_problems_are_divided_by_weight_and_remainders():
    assert quotas({"sums": 2, "shop": 1}, 8) == {"sums": 5, "shop": 3}  # 5 1/3 and 2 2/3
    assert quotas({"a": 1, "b": 1, "c": 1}, 8) == {
        "a": 3,
        "b": 3,
        "c": 2,
    }  # the first of equal remainders
    assert quotas({"a": 0.2, "b": 0.3}, 10) == {"a": 4, "b": 6}


def test_a_task_has_its_own_sections_and_its_share_of_a_step():
    sums, shop = settings_with().each.values()
    assert (sums.rollout.problems, shop.rollout.problems) == (2, 1)
    assert (sums.agent.max_turns, shop.agent.max_turns) == (4, 8)
    assert (sums.agent.system, shop.agent.system) == ("", "You shop.")
    assert ([*sums.rewards], sums.goal) == (
        [EXACT, "agentfly_core.rewards.format:tool_format"],
        EXACT,
    )
    assert ([*shop.rewards], shop.goal) == ([BOUGHT], BOUGHT)
    assert (sums.environments, [*shop.environments]) == ({}, [SHOP])


def test_missing_task_settings_come_from_the_experiment():
    shared = {key: SUMS[key] for key in ("tools", "rewards")}
    tasks = {"one": {"data": SUMS["data"]}, "two": {"data": {**SUMS["data"], "seed": 1}}}
    settings = settings_with(tasks=tasks, evaluate={"goal": EXACT}, **shared)
    for one in settings.each.values():
        assert (one.tools, one.rewards, one.goal) == (settings.tools, settings.rewards, EXACT)


def test_an_experiment_without_tasks_has_one_task():
    plain = Settings(model="m", data=SUMS["data"], rewards={EXACT: 1.0}, steps=1)
    assert plain.each == {"single": plain}
    assert plain.quotas(7) == {"single": 7}


def test_a_mixture_sums_its_data_and_reads_back_equal():
    mixed = settings_with()
    assert (mixed.data.train, mixed.data.test) == (12 + 6, 4 + 2)
    again = Settings.model_validate(mixed.model_dump(mode="json"))
    assert again == mixed
    assert again.digest == mixed.digest


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data": SUMS["data"]}, r"data\.test: each of the tasks sums, shop has its own data"),
        (
            {"shop": {**BUYING, "rewards": {}}},
            r"tasks\.shop\.rewards: got none, expected at",
        ),
        ({"sums": {**SUMS, "goal": ""}}, r"goal: got '', .*add a reward with weight 0"),
        (
            {
                "sums": {**SUMS, "warm_start": {"demonstrations": "a:b"}},
                "warm_start": {"rounds": 2},
            },
            r"tasks\.shop\.warm_start is missing, but",
        ),
        (
            {"evaluate": {"by": "task"}},
            r"evaluate\.by: got 'task', but success by task is always reported",
        ),
    ],
)
def test_a_wrong_mixture_is_refused_with_its_key(changes, message):
    with pytest.raises(ValueError, match=message):
        settings_with(**changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"shop": {**BUYING, "agent": {"max_model_len": 4000}}},
            "tasks.shop.agent.max_model_len: got 4000, but agent.max_model_len is 2000",
        ),
        (
            {"shop": {**BUYING, "weight": 0.1}},
            "tasks.shop.weight: got 0.1, so the task gets none of the 3 problems of a step",
        ),
        (
            {"evaluate": {"datasets": {"hard": {"use": "a:b", "test": 2}}}},
            "evaluate.datasets.hard: an experiment with `tasks` cannot have further",
        ),
        (
            {"night": {"number": 2, "tasks": {"smus": {"epoch": 1}}}},
            "night.tasks: got 'smus', expected names of tasks: sums, shop",
        ),
        (
            {"shop": {**BUYING, "rewards": {EXACT: 0.5}}},
            "tasks.shop.rewards: the weight or settings of exact differ from",
        ),
        (
            {"sums": {**SUMS, "environments": {SHOP: 3}}},
            "tasks.shop.environments: the limit or settings of Shop differ from",
        ),
        (
            {"rollout": {"problems": 20, "group_size": 2}},
            "needs 13 problems, but tasks.sums.data.train is 12",
        ),
        (
            {"rollout": {"problems": 10, "group_size": 2, "curriculum": {"window": 2}}},
            "needs 14 problems with rollout.curriculum.window=2, but tasks.sums.data",
        ),
        (
            {"night": {"number": 2}, "rollout": {"problems": 3, "curriculum": {"window": 2}}},
            "rollout.curriculum: a nightly run plays the problems in a fixed",
        ),
        ({"shop": {**BUYING, "environments": {}}}, "tasks.shop: The tool 'search' needs a Shop"),
    ],
)
def test_an_impossible_mixture_is_refused_before_any_work(changes, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        check(settings_with(**changes))


def test_a_shared_setting_is_refused_within_a_task(tmp_path):
    path = tmp_path / "two.yaml"
    path.write_text(
        "model: nano:calculator\nsteps: 1\n"
        "tasks: {sums: {data: {use: a:b, train: 1, test: 1}, rewards: {a:b: 1}, algorithm: ppo,\n"
        "  agent: {use: c:d, max_turn: 3}}}\n"
    )
    with pytest.raises(ValueError, match="not a valid experiment") as refusal:
        loading.read(str(path))
    for key in ("algorithm", "agent.use"):
        assert f"tasks.sums.{key}: there is no such key." in str(refusal.value)
    assert "tasks.sums.agent.max_turn: there is no such key. Did you mean" in str(refusal.value)


def test_an_unknown_task_setting_is_refused_and_a_new_task_read():
    with pytest.raises(ValueError, match=r"tasks\.ofice\.data: .*required"):
        loading.read("mixture", ["tasks.ofice.weight=3"])
    data = {"use": "agentfly_core.datasets.arithmetic:arithmetic", "train": 64, "test": 8}
    more = json.dumps(
        {
            "data": data,
            "rewards": {EXACT: 1.0},
            "warm_start": {"demonstrations": "agentfly_core.datasets.demonstrations:calculator"},
        }
    )
    tasks = loading.read("mixture", [f"tasks.more={more}"]).settings.tasks
    assert [*tasks] == ["calculator", "office", "shop", "more"]


def test_a_curriculum_is_read_from_a_file():
    rollout = loading.read("mixture", ["rollout.curriculum={window: 3}"]).settings.rollout
    assert (rollout.curriculum, rollout.refills) == (Curriculum(window=3), 0)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("warm_start.settings={spoilt: 0.9}", "warm_start.settings: got .*tasks.calculator.warm"),
        (
            f"evaluate.goal={BOUGHT}",
            "evaluate.goal: got .*but each task has its own goal",
        ),
    ],
)
def test_a_setting_of_each_task_is_refused_for_the_whole(override, message):
    with pytest.raises(ValueError, match=message):
        loading.read("mixture", [override])


def test_a_mistake_in_a_task_is_the_only_message(tmp_path):
    path = tmp_path / "two.yaml"
    path.write_text(
        "model: nano:calculator\nsteps: 1\nwarm_start: {episodes: 8, rounds: 1, batch: 8}\n"
        "tasks: {sums: {wieght: 2, data: {use: a:b, train: 1, test: 1}, rewards: {a:b: 1}}}\n"
    )
    with pytest.raises(ValueError, match=r"tasks\.sums\.wieght") as refusal:
        loading.read(str(path))
    assert "demonstrations" not in str(refusal.value)


def test_an_algorithm_refills_in_a_mixture_too():
    assert loading.read("mixture", ["algorithm=dapo"]).settings.rollout.refills == 2


def test_an_override_reaches_into_a_task():
    loaded = loading.read("mixture", ["tasks.shop.data.train=64", f"tasks.shop.rewards.{BOUGHT}=2"])
    assert loaded.settings.data.train == 4096 + 4096 + 64
    assert loaded.settings.tasks["shop"].rewards[BOUGHT].weight == 2.0
    assert loaded.origin["tasks.shop.data.train"] == "override"
    assert loaded.origin["data.train"] == "tasks"
