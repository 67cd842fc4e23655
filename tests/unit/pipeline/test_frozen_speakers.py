"""Frozen speakers of an experiment: settings, keys of episodes, and loading."""

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tokenizers.normalizers import Lowercase
from transformers import AutoTokenizer

from agentfly_core.config.site import Site
from agentfly_core.experiment import checks
from agentfly_core.experiment.experiment import Experiment
from agentfly_core.experiment.keys import StageKeys
from agentfly_core.inference.endpoint import EndpointSampler
from agentfly_core.inference.in_process import TransformersSampler
from agentfly_core.pipeline import inputs
from agentfly_core.pipeline.services import rollout_services
from agentfly_core.pipeline.workers.job import JobPlayer
from agentfly_core.pipeline.workers.local import LocalPlayer, LocalServices
from agentfly_core.pipeline.workers.samplers import Samplers
from agentfly_core.rollout.rules import Frozen, FrozenEndpoint, FrozenPolicy, FrozenSelf
from agentfly_core.runs.run import experiment_of_run, opened
from agentfly_core.runs.run_request import RunRequest
from agentfly_core.store.artifact import ArtifactKey, Pointer
from agentfly_core.store.store import Store
from tests.support import experiments
from tests.support.problems import schedule_of

GPT = {"url": "http://127.0.0.1:9/v1", "model": "wise"}
DATA, POLICY = Pointer("artifacts/data", "da7a"), Pointer("artifacts/start", "9f2c")


def experiment(folder: Path, frozen: dict[str, str], **endpoint: Any) -> Experiment:
    """An experiment with these frozen speakers, at a site with the endpoint `gpt`."""
    made = experiments.experiment(folder, agent={"frozen": frozen})
    site = Site.model_validate({"endpoints": {"gpt": {**GPT, **endpoint}}})
    return replace(made, site=site)


def speakers_of(here: Experiment, tokenizer: Any) -> dict[str, Frozen]:
    return Samplers(here, "").frozen(tokenizer)


def publish(store: Store, step: int, files: Sequence[Path] = ()) -> None:
    """Let the run demo publish the policy of a step from these files."""
    uri = f"runs/demo/steps/{step:06d}/policy"
    store.remove(uri)
    with store.publish(ArtifactKey(uri, "update", f"demo {step}", {})) as folder:
        for file in files:
            shutil.copy(file, folder)
        (folder / "step").write_text(str(step))


def episodes(here: Experiment) -> list[str]:
    """Return the keys of episodes played with the frozen speakers."""
    settings, frozen = here.settings, here.frozen
    drawn = schedule_of(settings).first_round(1, False).drawn(schedule_of(settings))
    return [
        StageKeys(settings).rollout("mine", POLICY, DATA, 1, 0, drawn, frozen).key,
        StageKeys(settings).evaluation(POLICY, DATA, "test", 0, frozen).key,
        StageKeys(settings).demonstrations(POLICY, DATA, frozen).key,
    ]


def changed(before: list[str], after: list[str]) -> list[bool]:
    return [old != new for old, new in zip(before, after, strict=True)]


def test_a_frozen_policy_changes_the_keys_of_episodes(tmp_path: Path, nano: Path) -> None:
    here = experiment(tmp_path, {"critic": "run:demo@1"})
    publish(here.store, 1)
    first = episodes(here)
    publish(here.store, 1)
    assert episodes(here) == first
    publish(here.store, 1, [nano / "config.json"])
    assert changed(first, episodes(here)) == [True] * 3
    assert here.frozen["critic"] == here.store.artifact("runs/demo/steps/000001/policy").digest


def test_a_chat_service_changes_keys_but_its_budget_does_not(
    tmp_path: Path,
) -> None:
    frozen = {"critic": "endpoint:gpt"}
    first = episodes(experiment(tmp_path, frozen))
    assert changed(first, episodes(experiment(tmp_path, frozen, max_requests=7))) == [False] * 3
    assert changed(first, episodes(experiment(tmp_path, frozen, model="wiser"))) == [True] * 3
    assert changed(first, episodes(experiment(tmp_path, {"judge": "endpoint:gpt"}))) == [True] * 3


def test_an_experiment_without_frozen_speakers_keeps_its_name(tmp_path: Path) -> None:
    usual = experiments.experiment(tmp_path)
    assert usual.settings.digest == experiment(tmp_path, {}).settings.digest
    assert usual.settings.digest != experiment(tmp_path, {"critic": "endpoint:gpt"}).settings.digest
    assert episodes(usual) == episodes(experiment(tmp_path, {}))


@pytest.mark.parametrize(
    ("frozen", "message"),
    [
        ({"critic": "run:demo"}, "critic: 'run:demo', expected run:NAME@STEP"),
        ({"critic": "gpt"}, r"critic: 'gpt', expected run:NAME@STEP, self\s+\(the"),
        ({"critic/2": "run:demo@1"}, "'critic/2', expected a role without a slash"),
    ],
    ids=["no step", "no policy", "an instance"],
)
def test_a_wrong_frozen_speaker_is_refused(
    frozen: dict[str, str], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=rf"agent\.frozen\n.*{message}"):
        experiment(tmp_path, frozen)


def test_the_policy_itself_may_play_any_role_untrained(tmp_path: Path, nano: Path) -> None:
    here = experiment(tmp_path, {"critic": "self", "tool_loop": "self"})
    checks._require_a_trained_speaker(here.whole)
    own = speakers_of(here, AutoTokenizer.from_pretrained(nano))
    assert own == {"critic": FrozenSelf("self"), "tool_loop": FrozenSelf("self")}
    assert changed(episodes(experiment(tmp_path, {})), episodes(here)) == [True] * 3


def test_the_agent_itself_cannot_be_frozen(tmp_path: Path) -> None:
    settings = experiment(tmp_path, {"tool_loop": "endpoint:gpt"}).settings
    with pytest.raises(ValueError, match=r"agent\.frozen\.tool_loop: .* --policy endpoint:gpt"):
        checks.check(settings)


def test_a_frozen_policy_without_weights_is_refused(tmp_path: Path, nano: Path) -> None:
    here = experiment(tmp_path, {"critic": "run:demo@1"})
    publish(here.store, 1, [nano / "model.safetensors"])
    here.store.strip("runs/demo/steps/000001/policy", "*.safetensors")
    with pytest.raises(ValueError, match=r"^agent\.frozen\.critic: The weights of run:demo@1"):
        RunRequest(here, "mine").check_new()


def test_a_run_continues_with_its_first_speakers(
    tmp_path: Path, nano: Path, caplog: pytest.LogCaptureFixture
) -> None:
    frozen = {"critic": "run:demo@1", "judge": "endpoint:gpt"}
    here = experiment(tmp_path, frozen)
    publish(here.store, 1, [*nano.iterdir()])
    with opened(here, "mine") as run:
        assert run.record["frozen"] == here.frozen
        assert experiment_of_run(run.record, here.store).frozen == here.frozen
    moved = experiment(tmp_path, frozen, url="http://127.0.0.1:8/v1")
    assert moved.frozen["judge"] != here.frozen["judge"]
    with opened(moved, "mine") as run:
        assert run.experiment.frozen == here.frozen
        run.experiment.require_speakers_unchanged()
        assert "url, model or extra of endpoint:gpt changed" in caplog.text
        publish(here.store, 1, [nano / "config.json"])
        with pytest.raises(ValueError, match=r"critic: the policy run:demo@1 has changed"):
            run.experiment.require_speakers_unchanged()


def test_the_record_of_a_run_without_speakers_names_none(tmp_path: Path) -> None:
    with opened(experiments.experiment(tmp_path), "mine") as run:
        assert "frozen" not in run.record


def test_a_missing_frozen_speaker_is_refused_before_any_work(tmp_path: Path) -> None:
    here = experiment(tmp_path, {"critic": "run:demo@3"})
    with pytest.raises(ValueError, match=r"agent\.frozen\.critic: The run 'demo' has published no"):
        RunRequest(here, "mine").check_new()
    with pytest.raises(ValueError, match=r"agent\.frozen\.critic: .*'local' has no endpoint"):
        checks.check_place(experiment(tmp_path, {"critic": "endpoint:gpd"}).settings, Site())


def test_roles_of_one_policy_share_a_sampler(tmp_path: Path, nano: Path) -> None:
    here = experiment(
        tmp_path, {"critic": "run:demo@1", "referee": "run:demo@1", "judge": "endpoint:gpt"}
    )
    publish(here.store, 1, [*nano.iterdir()])
    speakers = speakers_of(here, AutoTokenizer.from_pretrained(nano))
    critic, referee, judge = speakers["critic"], speakers["referee"], speakers["judge"]
    assert isinstance(critic, FrozenPolicy) and isinstance(referee, FrozenPolicy)
    assert critic.sampler is referee.sampler
    assert isinstance(judge, FrozenEndpoint)
    assert [one.name for one in speakers.values()] == ["run:demo@1", "run:demo@1", "endpoint:gpt"]


def playing(player: JobPlayer) -> LocalServices:
    assert isinstance(player, LocalPlayer)
    return player.services


def test_a_service_in_two_roles_has_one_budget(
    tmp_path: Path,
) -> None:
    here = experiment(tmp_path, {"critic": "endpoint:gpt", "judge": "endpoint:gpt"})
    plays = inputs.policy_named(here, "endpoint:gpt", inputs.base_model)
    with rollout_services(here, plays, "owner", tmp_path) as player:
        here = playing(player)
        critic, judge = here.frozen["critic"], here.frozen["judge"]
        assert isinstance(here.sampler, EndpointSampler)
        assert isinstance(critic, FrozenEndpoint) and isinstance(judge, FrozenEndpoint)
        assert critic.service is judge.service is here.sampler.service


def test_frozen_policies_rest_with_the_sampler(
    tmp_path: Path, nano: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = experiment(tmp_path, {"critic": "run:demo@1", "judge": "endpoint:gpt"})
    publish(here.store, 1, [*nano.iterdir()])
    rested: list[TransformersSampler] = []
    monkeypatch.setattr(TransformersSampler, "rest", lambda sampler: rested.append(sampler))
    with rollout_services(
        here, inputs.policy_named(here, "endpoint:gpt", inputs.base_model), "owner", tmp_path
    ) as player:
        player.rest()
        critic = playing(player).frozen["critic"]
        assert isinstance(critic, FrozenPolicy) and rested == [critic.sampler]


@pytest.mark.parametrize("same_vocabulary", [False, True])
def test_a_frozen_policy_with_other_tokens_is_refused(
    same_vocabulary: bool, tmp_path: Path, nano: Path
) -> None:
    here = experiment(tmp_path, {"critic": "run:demo@1"})
    publish(here.store, 1, [*nano.iterdir()])
    tokenizer = AutoTokenizer.from_pretrained(nano)
    if same_vocabulary:
        tokenizer.backend_tokenizer.normalizer = Lowercase()
    else:
        tokenizer.add_tokens(["<think>"])
    with pytest.raises(ValueError, match=r"critic: .*run:demo@1 .* model=run:demo@0"):
        speakers_of(here, tokenizer)
