"""Load models from a local folder, the Hugging Face hub or a Python package, and make untrained
models.
"""

import json
import math
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from transformers import (
    AutoModelForCausalLM,
    GenerationConfig,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)
from transformers.utils import logging
from transformers.utils.loading_report import LoadStateDictInfo

from agentfly_core.config.reference import NanoModel, PackagedModel
from agentfly_core.models import model_config, nano, probe
from agentfly_core.models.known import END_TOKENS, end_tokens
from agentfly_core.system.formats.text import fault, sentence

LoadingReport = Mapping[str, Collection[Any]] | LoadStateDictInfo
WRAPPERS = {
    "_orig_mod.": "torch.compile",
    "base_model.model.": "peft",
    "module.": "DistributedDataParallel",
    "_fsdp_wrapped_module.": "FSDP",
}
"""Maps each prefix of weight names to the model wrapper that adds this prefix."""
PROBLEMS = {
    "missing_keys": "missing",
    "unexpected_keys": "not part of the model",
    "mismatched_keys": "of another shape",
    "error_msgs": "not readable",
    "conversion_errors": "not convertible",
}
"""Maps each field of transformers' loading report to the words that error messages use."""
SHOWN = 3
"""The maximum number of weights named in an error message for each kind of problem. The message
contains the number of further weights.
"""


def materialise(reference: str, folder: Path, dtype: str) -> None:
    """Write config.json, the weights and the tokenizer of a model to a folder.

    `reference` is `nano:<recipe>`, `package:<name>`, a local folder, or an id of the Hugging Face
    hub with an optional `@revision`. `nano:<recipe>` is a tiny untrained model. Its files
    always have the same bytes. `dtype` is "float32" or "bfloat16". Raises ValueError if the model
    is missing, damaged or an adapter. Raises WrongFiles if the weights do not fit config.json or
    are not finite.
    """
    named, words = model_config.with_weights(reference), model_config.tokenizer(reference)
    if isinstance(named, NanoModel):
        assert isinstance(words, PreTrainedTokenizerFast)
        return write_untrained(words, folder, dtype, nano.POSITIONS)
    config = None if isinstance(named, PackagedModel) else model_config.of_reference(named)
    if config is not None:
        model_config.require_loadable(config, reference)
    _require_generation_config(Path(reference))
    try:
        model: Any = load(model_config.source(named), dtype)
    except SafetensorError as error:
        raise ValueError(
            sentence(
                f"Cannot load the model {reference!r}: {_damaged(Path(reference))} ({error}). "
                "Download or copy the model again; `hf cache` shows the downloaded models"
            )
        ) from error
    except WrongFiles:
        raise
    except Exception as error:  # damaged files raise errors of many types
        raise ValueError(model_config.not_there(reference, error)) from error
    if isinstance(named, PackagedModel):  # the file was quantised, but its loaded weights are not
        model.hf_quantizer, model.is_quantized = None, False
        del model.config.quantization_config
    model_config.require_loadable(model.config, reference)
    model_config.require_vocabulary(words, model.config, reference)
    _repair_config(model)
    write(model, words, folder)


def _damaged(folder: Path) -> str:
    names = []
    for path in sorted(folder.glob("*.safetensors")):
        try:
            safe_open(path, "pt")
        except SafetensorError:
            names.append(path.name)
    are = "are" if len(names) > 1 else "is"
    return f"{' and '.join(names) or 'a safetensors file'} {are} damaged"


class WrongFiles(ValueError):
    """The weights of a model do not fit its config.json, or are not finite."""


def load(source: Mapping[str, str], dtype: str) -> PreTrainedModel:
    """Load a model. `source` has the arguments of `from_pretrained`.

    Raises WrongFiles if weights are missing, superfluous or of a wrong shape.
    """
    with _quiet():
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            **source,
            dtype=getattr(torch, dtype),
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # the report lists all of them
            # pickled weights could run code
            use_safetensors=True,
            trust_remote_code=False,
        )
    model, report = loaded
    assert isinstance(model, PreTrainedModel)
    require_complete(report, source["pretrained_model_name_or_path"])
    if model_config.caps_attention(model.config):
        model.set_attn_implementation("eager")  # sdpa would ignore the cap
    return model


def require_complete(report: LoadingReport, where: str | Path) -> None:
    """Raise WrongFiles if the loading report of transformers lists problems, such as missing
    weights. `where` names the model in the message.
    """
    fields = report if isinstance(report, Mapping) else vars(report)
    problems = {
        what: sorted(map(_named, fields[key])) for key, what in PROBLEMS.items() if fields.get(key)
    }
    if not problems:
        return
    wrappers = (
        f" The prefix {prefix} comes from {program}: save the model that it wraps."
        for prefix, program in WRAPPERS.items()
        for name in problems.get("not part of the model", ())
        if name.startswith(prefix)
    )
    raise WrongFiles(
        f"The weights in {where} do not fit its config.json: "
        f"{'; '.join(f'{len(names)} {what} ({_some(names)})' for what, names in problems.items())}."
        f"{next(wrappers, '')} Save the whole model again with `save_pretrained`."
    )


def write(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    """Save a model with its tokenizer, its end tokens and a probe.

    A probe contains tokens with their log-probabilities, to check samplers later. Raises WrongFiles
    if a weight or a log-probability of the probe is not finite.
    """
    wrong = [name for name, weight in model.named_parameters() if not weight.isfinite().all()]
    if wrong:
        raise WrongFiles(
            f"The model {model.config.name_or_path} has NaN or infinite numbers in these weights: "
            f"{_some(wrong)}. Use an earlier checkpoint."
        )
    model.eval()
    with _quiet():
        tokens = probe.likely_tokens(model)
    logprobs = probe.of_model(model, tokens)
    if not all(map(math.isfinite, logprobs)):
        raise WrongFiles(
            f"The log-probabilities of {model.config.name_or_path} are not finite in "
            f"{model.dtype}, because the weights are too large. Use an earlier checkpoint."
        )
    logging.disable_progress_bar()
    model.save_pretrained(folder, max_shard_size="1TB")
    _add_end_tokens(model, tokenizer)
    tokenizer.save_pretrained(folder)
    probe.write(folder, tokens, logprobs)


def write_untrained(
    tokenizer: PreTrainedTokenizerFast, folder: Path, dtype: str, positions: int
) -> None:
    """Write a tokenizer and an untrained Llama model for contexts of `positions` tokens.

    The model has 3 layers of width 128 with 2 heads of size 64. vLLM supports heads of this size on
    CPUs. The bytes of the saved model are always the same.
    """
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = LlamaConfig(
            hidden_size=128,
            intermediate_size=352,
            num_hidden_layers=3,
            num_attention_heads=2,
            num_key_value_heads=2,
            tie_word_embeddings=False,
            bos_token_id=None,
            vocab_size=len(tokenizer),
            max_position_embeddings=positions,
            eos_token_id=tokenizer.eos_token_id,
        )
        model = LlamaForCausalLM(config)
    write(model.to(getattr(torch, dtype)), tokenizer, folder)


def _add_end_tokens(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
    eos = getattr(model.generation_config, "eos_token_id", None)
    further = {eos} if isinstance(eos, int) else {*(eos or ())}
    own = {*end_tokens(tokenizer)}
    if further - own:
        tokenizer.init_kwargs[END_TOKENS] = sorted(further | own)


def _require_generation_config(folder: Path) -> None:
    path = folder / "generation_config.json"
    if not path.is_file():
        return
    try:
        GenerationConfig(**json.loads(path.read_bytes()))
    except Exception as error:  # damaged files raise errors of many types
        raise WrongFiles(
            f"{path} cannot be read: {sentence(fault(error))} Correct or remove it."
        ) from None


def _repair_config(model: PreTrainedModel) -> None:
    """Correct `do_sample` and `tie_word_embeddings` in the configs of a model.

    `do_sample` is set to True if the sampling settings are invalid without it, because transformers
    would refuse to save the model. `tie_word_embeddings` is set to False if the output layer has
    its own weights, because vLLM would use the weights of the embedding instead.
    """
    settings = model.generation_config
    assert settings is not None, "every causal language model has one"
    try:
        settings.validate(strict=True)
    except ValueError:
        settings.do_sample = True
    layers = model.get_input_embeddings(), model.get_output_embeddings()
    if layers[1] is not None and layers[0].weight is not layers[1].weight:
        model.config.tie_word_embeddings = False


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress warnings of transformers in the `with` block.

    Missing or wrong weights are still reported, because `require_complete` raises an error.
    """
    logging.disable_progress_bar()
    level = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(level)


def _named(problem: object) -> str:
    """Return the name of the weight in an entry of the loading report.

    If the weight has a wrong shape, both shapes follow the name:
    "lm_head.weight [512, 64] [256, 64]".
    """
    if not isinstance(problem, tuple):
        return str(problem)
    name, *shapes = problem
    return " ".join([str(name), *(str(list(shape)) for shape in shapes)])


def _some(names: Collection[str]) -> str:
    shown = ", ".join(list(names)[:SHOWN])
    further = len(names) - SHOWN
    return f"{shown} and {further} more" if further > 0 else shown
