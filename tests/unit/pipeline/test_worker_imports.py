"""Workers load no scikit-learn, and no torch if they sample from a server."""

import subprocess
import sys

import pytest
from transformers import AutoTokenizer

from agentfly_core.models import nano
from agentfly_core.pipeline.workers.samplers import class_of, tokenizer_like
from tests.support.chat_templates import tokenizer_of

LOADS = """
import sys
from pathlib import Path
from agentfly_core.inference.vllm_client import VLLM
from agentfly_core.models.probe import Probe
from agentfly_core.pipeline.workers import program, samplers
from agentfly_core.system.service import Service
tokenizer = samplers.tokenizer_like(sys.argv[1], Path(sys.argv[2]))
VLLM(Service("vllm", "/tmp/vllm.sock"), "float32", 8)
print(*sorted({"torch", "pandas", "sklearn", "scipy", "prefect", "mlflow"} & sys.modules.keys()))
"""


def test_a_worker_that_samples_from_a_server_loads_no_torch(tmp_path):
    tokenizer = nano.byte_tokenizer()
    tokenizer.save_pretrained(tmp_path)
    command = [sys.executable, "-c", LOADS, class_of(tokenizer), str(tmp_path)]
    assert subprocess.check_output(command, text=True).strip() == ""


SAMPLES = """
import sys
from types import SimpleNamespace as Some
from agentfly_core.pipeline.workers import program, samplers
site, settings = Some(sampler_gpus=(), threads=1), Some(dtype="float32")
samplers.Samplers(Some(divided_site=site, settings=settings), "").here(None)
print(*sorted({"torch", "pandas", "sklearn", "prefect", "mlflow"} & sys.modules.keys()))
"""


def test_a_worker_that_samples_itself_loads_only_torch():
    command = [sys.executable, "-c", SAMPLES]
    assert subprocess.check_output(command, text=True).strip() == "torch"


@pytest.mark.parametrize(
    "family",
    ["qwen3", *(pytest.param(one, marks=pytest.mark.long) for one in ("llama3_1", "glm4moe"))],
)
def test_a_tokenizer_of_the_same_class_has_the_same_tokens(tmp_path, family):
    tokenizer_of(family).save_pretrained(tmp_path)
    chosen = AutoTokenizer.from_pretrained(tmp_path)
    loaded = tokenizer_like(class_of(chosen), tmp_path)
    assert type(loaded) is type(chosen)
    assert loaded.backend_tokenizer.to_str() == chosen.backend_tokenizer.to_str()
    assert loaded.special_tokens_map == chosen.special_tokens_map
    assert loaded.chat_template == chosen.chat_template
