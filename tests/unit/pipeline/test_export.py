"""A policy is exported as a directory that transformers and vLLM load as described."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from agentfly_core.config.experiment import Adapter
from agentfly_core.experiment.run_layout import RunLayout
from agentfly_core.models import adapter_artifact, lora
from agentfly_core.pipeline.export import export
from agentfly_core.store.artifact import ArtifactKey
from agentfly_core.store.store import Store
from flows.__main__ import main
from tests.support.experiments import experiment

SHAPE = Adapter(rank=2, alpha=4, targets=("q_proj", "v_proj"))
POLICY = RunLayout("mine").step(3).policy
CALCULATOR = "agentfly_core.tools.calculator:calculator"


def stored(tmp_path: Path, nano: Path, **settings: Any) -> Store:
    """A store with the policy of step 3 of the run `mine` and its run.json."""
    made = experiment(tmp_path, **settings)
    made.store.write_json("runs/mine/run.json", {"settings": made.settings.model_dump(mode="json")})
    with made.store.publish(ArtifactKey(POLICY, "update", "1", {})) as folder:
        for path in nano.iterdir():
            shutil.copy(path, folder)
        (folder / "tokenizer_config.json").write_text(
            json.dumps({**read(folder, "tokenizer_config.json"), "chat_template": "{{ 'old' }}"})
        )
        (folder / "metrics.json").write_text("{}")
        for path in folder.iterdir():
            path.chmod(0o600)
    return made.store


def read(folder: Path, name: str) -> Any:
    return json.loads((folder / name).read_text())


def blocks(folder: Path) -> list[str]:
    """Return the Python blocks of the page: for transformers and for vLLM."""
    return re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text(), re.DOTALL)


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        logits_of_eight: torch.Tensor = model(torch.arange(8)[None]).logits
    return logits_of_eight


def test_an_exported_policy_loads_as_documented_and_is_equal(
    tmp_path: Path, nano: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store, folder = stored(tmp_path, nano, agent={"max_tokens": 3}), tmp_path / "out/policy"
    export(store, "run:mine@3", folder)
    assert {path.name for path in folder.iterdir()} == {
        "README.md",
        "chat_template.jinja",
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    }
    monkeypatch.chdir(folder)
    loaded: dict[str, Any] = {}
    transformers, vllm = blocks(folder)
    exec(transformers, loaded)
    assert capsys.readouterr().out
    whole = AutoModelForCausalLM.from_pretrained(nano, dtype="float32")
    assert torch.equal(logits(loaded["model"]), logits(whole))
    compile(vllm, "README.md", "exec")
    assert 'llm = LLM(".", dtype="float32", generation_config="vllm")' in vllm
    assert "lora" not in vllm.lower().partition("llm = ")[2]


def test_an_adapter_is_exported_with_its_base_model(
    tmp_path: Path, nano: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, folder = stored(tmp_path, nano), tmp_path / "policy"
    with store.publish(ArtifactKey("artifacts/model/nano", "model", "0", {})) as base:
        shutil.copytree(nano, base, dirs_exist_ok=True)
    store.remove(POLICY)
    adapted = lora.load(nano, None, "float32")
    lora.add(adapted, SHAPE, seed=1)
    for name, weight in adapted.named_parameters():
        if "lora_B" in name:  # it begins as 0 and would change nothing
            torch.nn.init.constant_(weight, 0.1)
    with store.publish(ArtifactKey(POLICY, "update", "1", {})) as made:
        adapted.save_pretrained(made)
        for path in nano.glob("tokenizer*"):
            shutil.copy(path, made)
        adapter_artifact.remember(made, store.artifact("artifacts/model/nano"), SHAPE)
    export(store, "run:mine", folder)
    assert (folder / "base/model.safetensors").is_file()
    assert not (folder / "adapter.json").exists()
    monkeypatch.chdir(folder)
    loaded: dict[str, Any] = {}
    transformers, vllm = blocks(folder)
    exec(transformers.partition("messages =")[0], loaded)
    assert torch.equal(logits(loaded["model"]), logits(adapted))
    compile(vllm, "README.md", "exec")
    assert "enable_lora=True, max_lora_rank=8" in vllm
    assert 'LoRARequest("policy", 1, ".")' in vllm


def test_an_exported_policy_ends_its_replies_as_in_training(tmp_path: Path, nano: Path) -> None:
    model = shutil.copytree(nano, tmp_path / "model")
    settings = json.loads((model / "tokenizer_config.json").read_text())
    (model / "tokenizer_config.json").write_text(json.dumps({**settings, "end_tokens": [0]}))
    export(stored(tmp_path, model), "run:mine@3", tmp_path / "policy")
    assert read(tmp_path / "policy", "generation_config.json")["eos_token_id"] == [0, 2]
    assert "stop_token_ids=[0, 2])" in (tmp_path / "policy/README.md").read_text()


def test_an_exported_policy_has_its_training_chat_template(tmp_path: Path, nano: Path) -> None:
    store = stored(tmp_path, nano, tools=[CALCULATOR], agent={"system": "Be brief."})
    export(store, "run:mine@3", tmp_path / "policy")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "policy")
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "1+1?"}]
    listed = [{"type": "function", "function": {"name": "f", "description": "", "parameters": {}}}]
    text = tokenizer.apply_chat_template(messages, tools=listed, tokenize=False)
    assert text.startswith("<|im_start|>system\nBe brief.\n\n# Tools\n\n")
    page = (tmp_path / "policy/README.md").read_text()
    assert f"in this order: `{CALCULATOR}`." in page
    assert '{"role": "system", "content": "Be brief."}' in page
    assert "chat_template" not in read(tmp_path / "policy", "tokenizer_config.json")


class Plain:
    """A template of an author, without a text for transformers."""

    def __init__(self, tokenizer: object) -> None: ...


def test_a_template_without_jinja_is_named_on_the_page(tmp_path: Path, nano: Path) -> None:
    store = stored(tmp_path, nano, template={"use": f"{__name__}:Plain"})
    export(store, "run:mine@3", tmp_path / "policy")
    page = (tmp_path / "policy/README.md").read_text()
    assert "**The exported chat template differs from the one used in training**" in page
    assert f"`{__name__}:Plain` has no attribute `jinja`" in page


def test_exported_files_have_the_permissions_of_their_folder(tmp_path: Path, nano: Path) -> None:
    store = stored(tmp_path, nano)
    export(store, "run:mine@3", tmp_path / "policy")
    for folder in (store.root / POLICY, tmp_path / "policy"):
        rights = folder.stat().st_mode & 0o777
        assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {rights & 0o666}


def test_a_missing_policy_and_an_existing_folder_are_refused(
    tmp_path: Path, nano: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store = stored(tmp_path, nano)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").mkdir()
    for policy, folder, message in (
        ("run:yours", "policy", "The run 'yours' has published no policy in"),
        ("run:mine@9", "policy", "The run 'mine' has no policy of step 9 in"),
        ("mine@end", "policy", "got 'mine@end', expected run:NAME (its last policy) or run:NAME@"),
        ("run:mine@3", "there", "there already exists; remove it, or name a new folder."),
    ):
        assert main(["export", policy, folder, "--store", str(store.root)]) == 2
        assert message in capsys.readouterr().err
    assert [path.name for path in tmp_path.glob("*policy*")] == []
    assert main(["export", "mine@3", "policy", "--store", str(store.root)]) == 0
    shown = "mine@3 is in policy; the README.md there shows how to load it.\n"
    assert capsys.readouterr().out == shown
