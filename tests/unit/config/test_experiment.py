"""Experiment files: values, their origins, and refusals."""

import json
import os

import pytest

from agentfly_core.config import loading
from agentfly_core.config.experiment import Settings
from agentfly_core.config.site import Site
from agentfly_core.experiment import checks
from agentfly_core.experiment.keys import StageKeys
from agentfly_core.system.formats import strict_yaml
from tests.support.experiments import TINY


@pytest.fixture()
def tiny(tmp_path):
    (tmp_path / "tiny.yaml").write_text(TINY)
    return str(tmp_path / "tiny.yaml")


def test_values_come_from_defaults_file_and_overrides(tiny):
    read = loading.read(tiny, ["rollout.group_size=4"])
    assert (read.settings.update.learning_rate, read.origin["update.learning_rate"]) == (3e-4, tiny)
    assert (read.settings.rollout.group_size, read.origin["rollout.group_size"]) == (4, "override")
    assert (read.settings.rollout.problems, read.origin["rollout.problems"]) == (16, "default")


def test_an_override_replaces_the_whole_value_of_its_key(tiny):
    read = loading.read(
        tiny,
        [
            'rewards={"my.rewards:cites": 1}',
            "rewards.my.rewards:short=0.5",
            "evaluate.goal=my.rewards:cites",
        ],
    )
    assert read.settings.model_dump(mode="json")["rewards"] == {
        "my.rewards:cites": 1.0,
        "my.rewards:short": 0.5,
    }
    assert {source for key, source in read.origin.items() if key.startswith("rewards")} == {
        "override"
    }


def test_an_import_path_is_one_key_of_an_override(tiny):
    read = loading.read(tiny, ["rewards.agentfly_core.rewards.exact:exact=0.5"])
    assert read.settings.rewards["agentfly_core.rewards.exact:exact"].weight == 0.5
    assert read.origin["rewards.agentfly_core.rewards.exact:exact"] == "override"


def test_a_number_is_short_for_an_environments_limit(tiny):
    short, full, worn = (
        loading.read(tiny, [f"environments={{my:Shop: {pool}}}"]).settings
        for pool in ("8", "{limit: 8}", "{limit: 8, max_uses: 100, lifetime: 3600}")
    )
    assert short == full
    assert short.model_dump(mode="json")["environments"] == {"my:Shop": 8}
    assert worn.model_dump(mode="json")["environments"]["my:Shop"] == {
        "limit": 8,
        "max_uses": 100,
        "lifetime": 3600.0,
    }
    assert Settings.model_validate(worn.model_dump(mode="json")) == worn


def test_a_typing_mistake_is_refused_with_a_hint(tiny):
    with pytest.raises(ValueError, match=r"update.learning_rat: .* 'learning_rate'"):
        loading.read(tiny, ["update.learning_rat=1"])
    with pytest.raises(
        ValueError,
        match=r"experiment.*:\n  rollout.problems: .*equal to 1 \(got 0\)",
    ):
        loading.read(tiny, ["rollout.problems=0"])
    with pytest.raises(ValueError, match=r"environments.my:Shop.limt: .* 'limit'"):
        loading.read(tiny, ["environments={my:Shop: {limt: 8}}"])
    with pytest.raises(ValueError, match="  steps: got null, expected a value"):
        loading.read(tiny, ["steps=null"])
    with pytest.raises(ValueError, match=r"agent.None: .* strings \(got None\)"):
        loading.read(tiny, ["agent={null: 3}"])
    with pytest.raises(ValueError, match="expected key=value"):
        loading.read(tiny, ["steps"])
    with pytest.raises(ValueError, match="'quickstat' does not exist"):
        loading.read("quickstat")
    with pytest.raises(ValueError, match=r"'mine.yaml' does not exist \(/.*/mine.yaml\)"):
        loading.read("mine.yaml")


def test_an_empty_folder_is_refused_with_its_remedy(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="create a project: agentfly init NAME"):
        loading.read("quickstart")


def test_a_mistyped_file_is_refused_with_the_nearest_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "parcels.yaml").touch()
    with pytest.raises(ValueError, match=r"Did you mean 'parcels\.yaml'"):
        loading.read("parcel.yaml")
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "depot.yaml").touch()
    with pytest.raises(ValueError, match=r"Did you mean 'depot\.yaml'"):
        loading.read("conf/depott.yaml")
    with pytest.raises(ValueError, match=r"Known: depot\.$"):
        loading.read("conf/market_of_fish.yaml")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            TINY + "seed: [1, 2\n",
            r"tiny.yaml, line 8, column 1 is invalid YAML: expected ',' or '\]'",
        ),
        (
            TINY + "steps: 3\n",
            r"tiny.yaml, line 7, column 1 is invalid YAML: found duplicate key \"steps\"",
        ),
        (
            "update: {epochs: 1, epochs: 2}",
            'line 1, column 21 is invalid YAML: found duplicate key "epochs"',
        ),
        ("- a\n- b\n", "tiny.yaml contains a list, expected settings, one `key: value` per line"),
        ("train it\n", "tiny.yaml contains a str, expected settings"),
        ("seed: \x00\n", "tiny.yaml is invalid YAML"),
        (f"seed: {'9' * 5000}\n", "tiny.yaml is invalid YAML: Exceeds the limit"),
    ],
)
def test_a_file_without_settings_is_refused_with_the_line(text, message, tmp_path):
    (tmp_path / "tiny.yaml").write_text(text)
    with pytest.raises(ValueError, match=message):
        loading.read(str(tmp_path / "tiny.yaml"))


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ["data.tens=[1"],
            r"The value of the override 'data.tens', line 1, column 3 is invalid YAML",
        ),
        (["seed=1", "seed.x=2"], r"seed: Input should be a valid integer \(got \{'x': 2\}\)"),
        (["seed=x"], r"tiny\.yaml, seed=x is not a valid experiment configuration:\n  seed: "),
        (["=1"], "expected key=value"),
    ],
)
def test_an_unreadable_override_is_refused(overrides, message, tiny):
    with pytest.raises(ValueError, match=message):
        loading.read(tiny, overrides)


@pytest.mark.parametrize(
    ("text", "value"), [("1e-4", 1e-4), ("-2E3", -2000.0), ("7", 7), ("1e", "1e"), ("[1e2]", [100])]
)
def test_a_number_may_be_written_with_an_exponent(text, value):
    assert strict_yaml.parse(text, "here") == value


def test_a_date_is_text(tiny):
    read = loading.read(tiny, ["template.date=2026-01-31"])
    assert read.settings.template.settings["date"] == "2026-01-31"
    assert strict_yaml.parse(strict_yaml.dump(["2026-01-31"]), "here") == ["2026-01-31"]


@pytest.mark.parametrize("text", ["a: &x [1, *x]", "a: &x {b: {c: *x}}"])
def test_a_value_that_contains_itself_is_refused(text):
    with pytest.raises(ValueError, match=r"^here .*64 levels"):
        strict_yaml.parse(text, "here")
    assert strict_yaml.parse("a: &x [1]\nb: *x", "here") == {"a": [1], "b": [1]}


def test_an_override_may_be_any_json(tiny):
    system = "Be brief \U0001f600: yes"
    assert (
        loading.read(tiny, [f"agent={json.dumps({'system': system})}"]).settings.agent.system
        == system
    )


def test_a_missing_required_key_is_named(tmp_path):
    (tmp_path / "bare.yaml").write_text(TINY.replace("rewards:", "# rewards:"))
    with pytest.raises(ValueError, match=r"rewards: .*required$"):
        loading.read(str(tmp_path / "bare.yaml"))


def test_another_value_is_another_experiment(tiny):
    assert loading.read(tiny).settings.digest == loading.read(tiny, ["seed=0"]).settings.digest
    assert loading.read(tiny).settings.digest != loading.read(tiny, ["seed=1"]).settings.digest


def test_flows_do_not_change_the_identity_of_an_experiment(tiny):
    own = loading.read(tiny, ["flows={rows: 'builtins:dict'}"]).settings
    plain = loading.read(tiny).settings
    assert own.flows["rows"].use == "builtins:dict"
    assert own.digest == plain.digest
    (difference,) = loading.differences(plain.model_dump(mode="json"), own.model_dump(mode="json"))
    assert (difference.key, difference.resumable) == ("flows.rows", True)


def test_a_flow_takes_the_experiment_and_its_settings(tmp_path, monkeypatch):
    (tmp_path / "mine_rows.py").write_text("def rows(experiment, episodes: int = 8): ...")
    (tmp_path / "other_rows.py").write_text("def rows(episodes): ...")
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "tiny.yaml").write_text(TINY)

    def check(flow):
        checks.check(loading.read(str(tmp_path / "tiny.yaml"), [f"flows.rows={flow}"]).settings)

    check("{use: 'mine_rows:rows', episodes: 2}")
    with pytest.raises(ValueError, match=r"^flows\.rows: rows: episodes: .*\(got 'few'\)"):
        check("{use: 'mine_rows:rows', episodes: few}")
    with pytest.raises(ValueError, match=r"^flows\.rows: .* parameter 'experiment'"):
        check("other_rows:rows")


def test_flows_of_all_experiments_are_listed_after_each_edit(tmp_path, monkeypatch):
    monkeypatch.setattr(loading, "CONF", tmp_path)
    (tmp_path / "broken.yaml").write_text("flows: {")
    path = tmp_path / "tiny.yaml"
    path.write_text(TINY)
    assert loading.flows() == []
    path.write_text(TINY + "flows: {rows: 'mine:rows', more: 'mine:more'}\n")
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 1))
    assert loading.flows() == [("tiny", "rows"), ("tiny", "more")]
    named = [("tiny", "rows"), ("tiny", "other"), ("removed", "rows"), ("broken", "rows")]
    assert [loading.has_lost(*flow) for flow in named] == [False, True, True, False]


def test_a_difference_reports_whether_a_run_may_continue(tiny):
    old = loading.read(tiny).settings.model_dump(mode="json")
    new = loading.read(tiny, ["steps=9", "seed=1", "evaluate.every=3"]).settings.model_dump(
        mode="json"
    )
    resumable = {d.key: d.resumable for d in loading.differences(old, new)}
    assert resumable == {"steps": True, "seed": False, "evaluate.every": True}


def test_a_site_comes_from_file_environment_and_command(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "conf/site").mkdir(parents=True)
    (tmp_path / "conf/site/local.yaml").write_text("ranks: 1\nzero_stage: 2\n")
    monkeypatch.setenv("AGENTFLY_RANKS", "2")
    site = loading.site("local", "s3://bucket/runs")
    assert (site.ranks, site.zero_stage, site.store) == (2, 2, "s3://bucket/runs")
    origin = loading.site_origin("local", "s3://bucket/runs")
    assert [origin[key] for key in ("ranks", "zero_stage", "store", "device")] == [
        "AGENTFLY_RANKS",
        "conf/site/local.yaml",
        "--store",
        "default",
    ]
    with pytest.raises(ValueError, match="site 'lokal' does not"):
        loading.site("lokal")


def test_a_mistyped_variable_is_refused_but_not_internal_ones(monkeypatch):
    for name in ("AGENTFLY_RUN", "AGENTFLY_OWNER", "AGENTFLY_SANDBOX"):
        monkeypatch.setenv(name, "a mark")
    assert loading.site("local").name == "local"
    monkeypatch.setenv("AGENTFLY_SAMPLR", "transformers")
    with pytest.raises(
        ValueError, match=r"variable AGENTFLY_SAMPLR\. Did you mean 'AGENTFLY_SAMPLER'"
    ):
        loading.site("local")


def test_a_wrong_environment_value_is_refused_by_its_variable(
    monkeypatch,
):
    monkeypatch.setenv("AGENTFLY_RANKS", "two")
    with pytest.raises(
        ValueError,
        match=r"AGENTFLY_RANKS.*site configuration:\n  ranks: .*got 'two'",
    ):
        loading.site("local")


def test_a_site_refuses_a_password(monkeypatch):
    monkeypatch.setenv("AGENTFLY_MLFLOW_TRACKING_URI", "http://me:opensesame@host:5000")
    with pytest.raises(ValueError, match=r"mlflow_tracking_uri: .*secret") as refused:
        loading.site("local")
    assert "opensesame" not in str(refused.value)


def test_a_url_is_named_by_its_variable_and_never_shown(monkeypatch):
    monkeypatch.setenv("AGENTFLY_PING_URL_ENV", "MY_PING")
    assert loading.site("local").ping_url_env == "MY_PING"
    monkeypatch.setenv("AGENTFLY_PING_URL_ENV", "https://hc-ping.com/0c5d-91e1")
    with pytest.raises(ValueError, match="name of an environment") as refused:
        loading.site("local")
    assert "0c5d-91e1" not in str(refused.value)


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        (
            {"device": "cuda", "offload": "optimizer"},
            "got offload 'optimizer', .* zero_stage 1 or more, .* is 0",
        ),
        ({"device": "cuda", "offload": "all", "zero_stage": 2}, "needs zero_stage 3 or more"),
        (
            {"offload": "optimizer", "zero_stage": 1},
            "got offload 'optimizer' with `device: cpu`; remove offload",
        ),
    ],
)
def test_useless_offload_is_refused(settings, complaint):
    with pytest.raises(ValueError, match=complaint):
        Site(**settings)
    assert Site(device="cuda", offload="all", zero_stage=3).offload == "all"


def test_several_ranks_divide_the_optimizer_state():
    assert [Site(ranks=ranks).zero_stage for ranks in (1, 2)] == [0, 1]


def test_zero_stage_0_with_ranks_and_bfloat16_is_refused(
    tiny,
):
    read = loading.read(tiny, ["dtype=bfloat16"])
    checks.check_place(read.settings, Site(zero_stage=0))
    checks.check_place(read.settings, Site(ranks=2))
    with pytest.raises(
        ValueError, match="zero_stage is 0 with 2 ranks, but bfloat16 weights need ZeRO"
    ):
        checks.check_place(read.settings, Site(ranks=2, zero_stage=0))


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            "promotion.reward_margins={exat: 0.1}",
            r"got 'exat', expected the name of a reward \(exact",
        ),
        ("promotion.confirmation=never", r"promotion.confirmation.use"),
        ("promotion.tokens=0", r"promotion.tokens"),
        (
            'promotion.datasets={hard: {use: "agentfly_core.datasets.files:files", test: 9}}',
            r"promotion.datasets.hard: files has no default for train_file",
        ),
        ('promotion.datasets={hard: {use: "a:b"}}', r"promotion.datasets.hard.test"),
    ],
)
def test_an_impossible_promotion_is_refused_before_any_work(tiny, override, message):
    with pytest.raises(ValueError, match=message):
        checks.check(loading.read(tiny, [override]).settings)


def test_fresh_problems_need_a_generated_dataset(tiny):
    checks.check(loading.read(tiny, ["promotion.confirmation=fresh"]).settings)
    files = '{use: "tests.support.problems:clean", train: 64, test: 8}'
    with pytest.raises(ValueError, match=r"clean .*@generated\. .*=split"):
        checks.check(loading.read(tiny, [f"data={files}", "promotion.confirmation=fresh"]).settings)


def test_promotion_settings_change_no_stage_keys(tiny):
    plain, strict = (loading.read(tiny, o).settings for o in ([], ["promotion.tokens=0.1"]))
    assert plain.digest != strict.digest
    assert StageKeys(plain).prepare() == StageKeys(strict).prepare()


def test_a_run_of_no_steps_needs_a_warm_start(tiny):
    with pytest.raises(ValueError, match=r"steps: got 0, .*warm_start"):
        loading.read(tiny, ["steps=0", "warm_start=null"])
    chats = "warm_start={demonstrations: 'file:chats.jsonl'}"
    assert [*loading.read(tiny, ["steps=0", chats]).settings.own_steps] == []
