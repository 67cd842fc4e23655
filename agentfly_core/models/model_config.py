"""Read config.json and the tokenizer of a model, and check both before the weights are read."""

import importlib.util
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from agentfly_core.config.reference import (
    EndpointPolicy,
    HubModel,
    LastPolicy,
    LocalModel,
    NanoModel,
    OwnNano,
    PackagedModel,
    RunPolicy,
    model_reference,
)
from agentfly_core.models.known import PACKAGES, refuse_adapter, require_package
from agentfly_core.models.type_names import PreTrainedConfig, PreTrainedTokenizerBase
from agentfly_core.system.formats.json_value import flat
from agentfly_core.system.formats.text import counted, fault, sentence

ARCHITECTURES: dict[str, list[str]] = tomllib.loads(
    Path(__file__).with_name("architectures.toml").read_text()
)
EXPERTS = re.compile(r"(moe_)?(num|n)_(local_|routed_)?experts")
MASKED = {"full_attention", "sliding_attention"}
"""Types of layers whose attention accepts any attention mask. Such layers are needed for prefix
sharing, i.e. for computing the common prefix of several sequences only once.
"""
UNSTEADY = {"longrope", "dynamic"}
"""RoPE types whose frequencies change if a row exceeds the original maximum length of the model. In
transformers, the longest row of a batch determines the frequencies of all rows of the batch.
"""
DENSE, SPARSE = {"mlp", "dense"}, {"moe", "sparse"}
"""Types of layers without attention: layers with one feed-forward network, and layers with a
mixture of experts.
"""


def source(model: HubModel | LocalModel | PackagedModel) -> dict[str, str]:
    """Return the arguments with which `from_pretrained` of transformers loads a model.

    Raises ValueError if the package of the model is not installed.
    """
    if isinstance(model, LocalModel):
        return {"pretrained_model_name_or_path": model.folder, "revision": "main"}
    if isinstance(model, HubModel):
        return {"pretrained_model_name_or_path": model.name, "revision": model.revision or "main"}
    require_package(model.name)
    package, file = PACKAGES[model.name]
    spec = importlib.util.find_spec(package)
    assert spec and spec.origin
    return {"pretrained_model_name_or_path": str(Path(spec.origin).parent), "gguf_file": file}


def with_weights(reference: str) -> HubModel | LocalModel | PackagedModel | NanoModel:
    """Parse a reference to a model with its own weights.

    Raises ValueError if the reference names a run or a chat service (a model API). Also raises
    ValueError for the reference `nano`, because each experiment makes this tiny model from its own
    data. A reference such as `nano:calculator` is accepted.
    """
    model = model_reference(reference)
    if isinstance(model, OwnNano | RunPolicy | LastPolicy | EndpointPolicy):
        raise ValueError(
            f"Got {reference!r}, expected a model with its own weights: nano:<recipe>, "
            "package:<name>, a directory or a Hugging Face id."
        )
    return model


def tokenizer(reference: str) -> PreTrainedTokenizerBase:
    """Load the tokenizer of a model. The weights are not loaded.

    Raises ValueError if the tokenizer is missing or damaged.
    """
    model = with_weights(reference)
    if isinstance(model, NanoModel):
        from agentfly_core.models import nano  # takes seconds

        return nano.shipped(model.recipe)
    from transformers import AutoTokenizer  # loads torch

    refuse_adapter(Path(reference))
    origin = source(model)
    try:
        loaded: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
            **origin, trust_remote_code=False
        )
    except Exception as error:  # damaged files raise errors of many types
        raise ValueError(not_there(reference, error)) from error
    return loaded


def not_there(reference: str, error: Exception) -> str:
    cause = str(error) if isinstance(error, OSError | ValueError) else fault(error)
    return (
        f"Cannot load the model {reference!r}: {sentence(cause)} Expected nano, nano:<recipe>, "
        "package:<name>, a directory with config.json, *.safetensors and tokenizer files, or a "
        "Hugging Face id."
    )


def of_reference(model: HubModel | LocalModel) -> PreTrainedConfig | None:
    """Read the config of a model in a local folder, or of a hub model that is in the local cache.

    Returns None if the config of a hub model is not in the cache. Raises ValueError if the
    config.json in a folder cannot be read.
    """
    from transformers import AutoConfig  # takes seconds

    try:
        config: PreTrainedConfig = AutoConfig.from_pretrained(
            **source(model), local_files_only=True, trust_remote_code=False
        )
    except Exception as error:  # damaged files raise errors of many types
        if isinstance(model, HubModel):
            return None
        raise ValueError(
            f"The config.json in {model.folder} cannot be read: {sentence(fault(error))}"
        ) from None
    return config


def require_loadable(config: PreTrainedConfig, where: str) -> None:
    """Raise ValueError if a model cannot be loaded, such as an encoder or a quantised model.

    `where` is the name of the model for the error message.
    """
    if faults := list(_load_faults(config)):
        raise ValueError(f"The model {where} cannot be loaded: {faults[0]}")


def require_trainable(config: PreTrainedConfig, shares_prefixes: bool) -> None:
    """Raise ValueError if the learner cannot train a model. The message contains the reasons.

    `shares_prefixes` is the setting update.share_prefixes.
    """
    if reasons := untrainable(config, shares_prefixes):
        raise ValueError(f"A {config.model_type} model cannot be trained: {' '.join(reasons)}")


def require_served_on_cpu(config: PreTrainedConfig) -> None:
    """Raise ValueError if vLLM cannot serve a model on a CPU."""
    text = config.get_text_config(decoder=True)
    if "linear_attention" in (getattr(text, "layer_types", None) or ()):
        raise ValueError(
            f"A {config.model_type} model has linear_attention layers, which vLLM does not serve "
            "on a CPU: set site.sampler=transformers."
        )


def require_positions(config: PreTrainedConfig, max_model_len: int, where: str) -> None:
    """Raise ValueError if `max_model_len` is larger than the number of positions of a model."""
    limit, kind = positions(config), _rope(config).get("rope_type")
    why = (
        f" With {kind} RoPE, rows with more positions would change the results of other rows in "
        "the batch."
    )
    if limit is not None and max_model_len > limit:
        raise ValueError(
            f"agent.max_model_len is {max_model_len}, but the model {where} has {limit} positions: "
            f"set agent.max_model_len={limit} or less.{why if kind in UNSTEADY else ''}"
        )


def require_vocabulary(
    tokenizer: PreTrainedTokenizerBase, config: PreTrainedConfig, where: str
) -> None:
    """Raise ValueError if token ids of the tokenizer are beyond the embeddings of the model.

    Unused special tokens are ignored. A special token is used if the chat template contains the
    token, or if the token begins or ends texts (bos and eos).
    """
    size = config.get_text_config(decoder=True).vocab_size
    template = str(getattr(tokenizer, "chat_template", None) or "")
    ends = (tokenizer.bos_token, tokenizer.eos_token)
    special = set(tokenizer.all_special_ids)
    beyond = sorted(
        token
        for token, number in tokenizer.get_vocab().items()
        if number >= size and (number not in special or token in template or token in ends)
    )
    if beyond:
        raise ValueError(
            f"The tokenizer of {where} has {counted(len(beyond), 'token')} with an id of {size} or "
            f"more (such as {beyond[0]!r}), but the model's vocab_size is {size}: call "
            "model.resize_token_embeddings(len(tokenizer))."
        )


def untrainable(config: PreTrainedConfig, shares_prefixes: bool) -> list[str]:
    """Return sentences with the reasons why the learner cannot train a model.

    For a trainable model, the list is empty. `shares_prefixes` is the setting
    update.share_prefixes.
    """
    from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING_NAMES

    text = config.get_text_config(decoder=True)
    reasons = [
        f"The model changes its logits after the output projection ({name}: {value}), and the "
        "learner does not support this."
        for name in ARCHITECTURES["changes_logits"]
        if (value := getattr(text, name, None)) not in (None, 1.0)
    ]
    if text.model_type in (*ARCHITECTURES["other_outputs"], *MODEL_FOR_MASKED_LM_MAPPING_NAMES):
        reasons.append("The model's logits are not one projection of causal hidden states.")
    if experts := _experts(text):
        reasons.append(
            f"The model is a mixture of experts ({experts}), and the learner does not replay "
            "routers yet. The model can only be sampled and evaluated: agentfly evaluate "
            "EXPERIMENT --policy base."
        )
    if shares_prefixes and (attention := _limited_attention(text)):
        reasons.append(
            "update.share_prefixes needs attention by sdpa or eager, and the model has "
            f"{attention}: set update.share_prefixes=false."
        )
    return reasons


def caps_attention(config: PreTrainedConfig) -> bool:
    """Whether a model applies soft-capping to its attention logits, as Gemma 2 does."""
    text = config.get_text_config(decoder=True)
    return getattr(text, "attn_logit_softcapping", None) is not None


def positions(config: PreTrainedConfig) -> int | None:
    """Return the maximum length of a model's input in tokens, or None for an unlimited length."""
    limit = getattr(config.get_text_config(decoder=True), "max_position_embeddings", None)
    if not isinstance(limit, int) or limit <= 0:
        return None
    rope = _rope(config)
    original = int(rope.get("original_max_position_embeddings") or limit)
    if rope.get("rope_type") in UNSTEADY:
        return original
    if rope.get("rope_type") not in ARCHITECTURES["stretched"]:
        return limit
    # `limit` is the extended length in some configs, and the original length in others
    return max(limit, int(original * (rope.get("factor") or 1.0)))


def _rope(config: PreTrainedConfig) -> Mapping[str, Any]:
    text = config.get_text_config(decoder=True)
    rope: Mapping[str, Any] = getattr(text, "rope_parameters", None) or {}
    return rope


def _load_faults(config: PreTrainedConfig) -> Iterator[str]:
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as CAUSAL

    if config.model_type not in CAUSAL:
        yield f"model_type is {config.model_type}, expected a causal language model."
    classes = getattr(config, "architectures", None) or []
    causal = {name for name in classes if name.endswith("ForCausalLM") or name in CAUSAL.values()}
    if others := [name for name in classes if "For" in name and name not in causal]:
        yield (
            f"config.json has the architecture {others[0]}, which has no output layer for tokens; "
            "expected a causal language model such as LlamaForCausalLM."
        )
    if getattr(config, "is_encoder_decoder", False):
        yield f"{config.model_type} has an encoder, expected a model that is only a decoder."
    if not hasattr(config, "vocab_size"):
        yield (
            f"{config.model_type} is a wrapper around several models (config.json has no "
            "vocab_size): save only the language model, and name the folder of this copy."
        )
    if quantised := getattr(config, "quantization_config", None):
        settings = quantised if isinstance(quantised, Mapping) else vars(quantised)
        yield (
            f"the weights are quantised ({settings.get('quant_method', 'quantization_config')}): "
            "name a copy of the model in float32 or bfloat16."
        )


def _experts(text: PreTrainedConfig) -> str:
    kinds = set(getattr(text, "layer_types", None) or ())
    if not getattr(text, "is_moe", True) or (kinds & DENSE and not kinds & SPARSE):
        return ""
    counts = (
        f"{name}: {value}"
        for path, value in flat(text.to_dict()).items()
        if EXPERTS.fullmatch(name := path.rpartition(".")[2])
        if isinstance(value, int) and value > 1
    )
    return next(counts, "")


def _limited_attention(text: PreTrainedConfig) -> str:
    """Name the attention that prevents prefix sharing for a model, such as "linear_attention".

    Prefix sharing needs an arbitrary attention mask. If all layers of the model support such masks,
    the result is "".
    """
    kinds = set(getattr(text, "layer_types", None) or ())
    if limited := kinds - MASKED - DENSE - SPARSE:
        return ", ".join(sorted(limited))
    if text.model_type in ARCHITECTURES["unmasked"] or getattr(text, "alibi", False):
        return "an attention that no mask limits"
    if (kernel := getattr(text, "_attn_implementation", None)) not in (None, "sdpa", "eager"):
        return f"attention by {kernel}"
    return ""
