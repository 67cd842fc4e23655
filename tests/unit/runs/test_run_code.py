"""A run and its code: keys that an edit changes, refusals and messages."""

import io
import subprocess

import pytest
from rich.console import Console

from agentfly_core.config.loading import read
from agentfly_core.experiment.keys import StageKeys
from agentfly_core.experiment.run_layout import record_of
from agentfly_core.experiment.user_code import changed, code_of, continued, edited
from agentfly_core.runs.listing import as_json, listed, view
from agentfly_core.runs.run import opened
from agentfly_core.runs.run_request import similar_run
from agentfly_core.store.artifact import Pointer
from agentfly_core.system.revision import revision
from flows.experiments import load_experiment
from tests.support.experiments import experiment
from tests.support.own_code import PROJECT, author_folder, edit, here, stage_keys

SHOP = """
model: nano:calculator
steps: 2
tools: [own_tools:lookup]
data: {use: "own_data:problems", train: 16, test: 4}
rewards: {own_rewards:brief: 1}
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    yield from author_folder(tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("name", "stages"),
    [
        ("own_data", {"prepare"}),
        ("own_tools", {"demonstrate", "rollout", "evaluate"}),
        ("own_prices", {"demonstrate", "rollout", "evaluate"}),
        ("own_rewards", {"score"}),
    ],
)
def test_an_edit_changes_the_keys_of_stages_that_run_the_code(project, name, stages):
    before = stage_keys(here(project).settings)
    edit("own_notes", "PAGES = 12\n")  # a file without importers
    assert stage_keys(here(project).settings) == before
    edit(name, f"{PROJECT[name]}MORE = 1\n")
    after = stage_keys(here(project).settings)
    assert {stage for stage in before if before[stage] != after[stage]} == stages


def test_an_edited_reward_scores_shared_episodes_separately(project):
    played = [Pointer("artifacts/evaluate/9f2c/test/rollout-000", "77b0")]
    before = StageKeys(here(project).settings).scored(played)
    edit("own_rewards", PROJECT["own_rewards"].replace("1.0", "0.5"))
    after = StageKeys(here(project).settings).scored(played)
    assert before.uri != after.uri


def test_a_reward_with_an_environment_counts_for_the_rollout(project):
    asking = (
        "from agentfly_core import Trajectory, reward\n"
        "from agentfly_core.recipes.shop.environment import Shop\n\n"
        "@reward\ndef brief(trajectory: Trajectory, *, shop: Shop) -> float:\n    return 1.0\n"
    )
    edit("own_rewards", asking)
    pools = {"agentfly_core.recipes.shop.environment:Shop": 2}
    code = here(project, environments=pools).settings.code
    assert "own_rewards" in code["rollout"]
    assert "score" not in code


def test_declared_data_files_count_and_must_exist(project):
    (project / "prices.csv").write_text("tea,3\n")
    before = stage_keys(here(project, code_files=["prices.csv"]).settings)
    (project / "prices.csv").write_text("tea,4\n")
    after = stage_keys(here(project, code_files=["prices.csv"]).settings)
    assert {stage for stage in before if before[stage] != after[stage]} == {
        "prepare",
        "demonstrate",
        "rollout",
        "evaluate",
        "score",
    }
    with pytest.raises(ValueError, match=r"code_files: 'no.csv' is missing in"):
        here(project, code_files=["no.csv"])


def test_the_files_of_a_program_count_for_the_rollout(project):
    def keys(**agent):
        return stage_keys(here(project, agent={"use": "program", **agent}).settings)

    for name in ("my_agent.py", "prompt.txt"):
        (project / name).write_text("1")
    agent = {"command": ["python", "my_agent.py"], "files": ["prompt.txt"]}
    for name in ("my_agent.py", "prompt.txt"):
        before = keys(**agent)
        (project / name).write_text("2")
        after = keys(**agent)
        assert {stage for stage in before if before[stage] != after[stage]} >= {"rollout"}
    with pytest.raises(ValueError, match=r"code_files: 'no.txt' is missing in"):
        keys(**{**agent, "files": ["no.txt"]})


def test_an_agent_of_ones_own_in_a_script_has_its_digest(project):
    edit("own_agent", "from agentfly_core.agents.tool_loop import tool_loop\n")
    made = here(project).with_agent(use="own_agent:tool_loop")
    assert made.settings.code == here(project, agent={"use": "own_agent:tool_loop"}).settings.code


def test_an_experiment_of_built_in_parts_has_no_digests(tmp_path):
    data = {"use": "agentfly_core.datasets.arithmetic:arithmetic", "train": 8, "test": 4}
    made = experiment(tmp_path, data=data)
    assert code_of(made.settings, made.tasks) == made.settings.code


def test_digests_cannot_be_set(tmp_path):
    (tmp_path / "a.yaml").write_text("code: {rollout: {a: b}}\n")
    with pytest.raises(ValueError, match="The key `code` is computed and cannot be set"):
        read(str(tmp_path / "a.yaml"))


def test_an_edit_is_another_run_and_its_reversal_the_old_one(project):
    first = here(project).run_name("", False)
    edit("own_prices", "PRICES = {'tea': '4'}\n")
    assert here(project).run_name("", False) != first
    edit("own_prices", PROJECT["own_prices"])
    assert here(project).run_name("", False) == first


def test_another_run_names_the_module_that_differs(project):
    with opened(here(project), "old"):
        pass
    edit("own_tools", PROJECT["own_tools"].replace("return PRICES[key]", "return '0'"))
    now = here(project)
    record = similar_run(now.store, now.settings.model_dump(mode="json"))
    assert (record["name"], changed(record, now.settings.code)) == ("old", ["own_tools"])
    other = here(project, seed=1)
    assert similar_run(other.store, other.settings.model_dump(mode="json")) is None


def test_an_edit_of_a_named_run_is_refused_with_the_module(project):
    with opened(here(project), "demo"):
        pass
    edit("own_prices", "PRICES = {'tea': '4'}\n")
    with pytest.raises(ValueError, match=r"code of own_prices .*--accept-code"):
        with opened(here(project), "demo"):
            pass


def test_the_code_of_a_run_has_no_empty_digests(project):
    data = {"use": "agentfly_core.datasets.arithmetic:arithmetic", "train": 8, "test": 4}
    now = here(project, data=data)
    with opened(now, "demo") as run:
        assert run.settings == now.settings


def test_a_further_evaluation_dataset_has_its_own_code(project):
    with opened(here(project), "demo") as run:
        record = record_of(run.store, "demo")
    edit("own_prices", PROJECT["own_prices"])
    held_out = {"hard": {"use": "own_rewards:brief", "test": 4}}
    more = here(project, evaluate={"datasets": held_out})
    assert "own_rewards" in continued(more.settings.code, record)["prepare"]


def test_a_dataset_added_later_is_recorded_with_its_code(project):
    with opened(here(project), "demo"):
        pass
    more = {"evaluate": {"datasets": {"hard": {"use": "own_more:problems", "test": 4}}}}
    edit("own_more", PROJECT["own_data"])
    with opened(here(project, **more), "demo") as run:
        assert "own_more" in run.record["code"]["modules"]
    edit("own_more", f"{PROJECT['own_data']}MORE = 1\n")
    with pytest.raises(ValueError, match=r"code of own_more "):
        with opened(here(project, **more), "demo"):
            pass


def test_run_json_has_the_commit_of_the_authors_repository(project):
    def git(*words):
        who = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org"]
        subprocess.run(["git", *who, *words], cwd=project, check=True, capture_output=True)

    git("init")
    git("add", "own_tools.py")
    git("commit", "-m", "first")
    revision.cache_clear()
    with opened(here(project), "clean") as run:
        repository = run.record["code"]["repository"]
    assert (len(repository["commit"]), repository["dirty"]) == (40, "")
    edit("own_tools", f"{PROJECT['own_tools']}MORE = 1\n")
    revision.cache_clear()
    with opened(here(project), "dirty") as run:
        other = run.record["code"]["repository"]
    assert (other["commit"], len(other["dirty"])) == (repository["commit"], 16)


def test_commands_load_the_code_of_an_experiment(project):
    (project / "shop.yaml").write_text(SHOP)
    loaded = load_experiment("shop.yaml", [], "local", str(project / "store"))
    assert sorted(loaded.settings.code) == ["demonstrate", "prepare", "rollout", "score"]
    assert loaded.origin["code.rollout.own_tools"] == "modules"


def test_a_fork_plays_its_origins_data_after_a_code_edit(project):
    (project / "shop.yaml").write_text(SHOP)
    there = ("local", str(project / "store"))
    old = load_experiment("shop.yaml", [], *there)
    with opened(old, "old"):
        pass
    edit("own_data", f"{PROJECT['own_data']}MORE = 1\n")
    another = load_experiment("shop.yaml", ["steps=3"], *there)
    assert StageKeys(another.settings).prepare() != StageKeys(old.settings).prepare()
    fork = load_experiment("shop.yaml", ["steps=3", "fork={run: old, step: 1}"], *there)
    assert StageKeys(fork.settings).prepare() == StageKeys(old.settings).prepare()


def test_edited_functions_of_a_run_are_named(project):
    with opened(here(project), "demo") as run:
        pass
    assert edited(run.record) == []
    edit("own_tools", PROJECT["own_tools"].replace("return PRICES[key]", "return '0'"))
    edit("own_prices", "PRICES = {'tea': '4'}\n\ndef price(key):\n    return PRICES[key]\n")
    edit("own_rewards", "from agentfly_core import Trajectory, reward\n")
    names = ["own_prices", "own_prices.price", "own_rewards", "own_rewards.brief"]
    assert edited(run.record) == [*names, "own_tools.lookup"]


def test_a_data_file_is_named_when_it_was_edited(project):
    (project / "prices.csv").write_text("tea,3\n")
    with opened(here(project, code_files=["prices.csv"]), "demo") as run:
        pass
    (project / "prices.csv").write_text("tea,4\n")
    assert edited(run.record) == ["prices.csv"]


def test_modules_missing_in_this_folder_are_not_reported_as_edited(project):
    with opened(here(project), "demo") as run:
        record = run.record
    for name in PROJECT:
        (project / f"{name}.py").unlink()
    edit("own_tools", PROJECT["own_tools"])
    (project / "own_tools.py").unlink()
    assert edited(record) == []


def test_the_list_names_an_edited_function(project):
    now = here(project)
    with opened(now, "demo"):
        pass
    edit("own_tools", PROJECT["own_tools"].replace("return PRICES[key]", "return '0'"))
    (run,) = listed(now.store)
    console = Console(file=io.StringIO(), width=200)
    console.print(view([run], now.store))
    assert "  own_tools.lookup changed" in console.file.getvalue()
    assert as_json([run])["runs"][0]["edited"] == ("own_tools.lookup",)
    assert " --run demo --accept-code" in run.command
