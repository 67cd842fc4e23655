"""Imports point down, and slow packages are imported by those who need them."""

import ast
import subprocess
import sys

import pytest

from tests.support.project import ROOT

LAYERS = [
    {"record", "identity", "environment"},
    {"signature", "resources", "template", "sampler", "service", "owner", "files"},
    {"tool", "reward", "batch"},
    {"algorithm", "agent", "rollout", "learner", "dataset", "store", "config"},
]
ONLY = {"mlflow": ("tracking.py",), "deepspeed": ("learners/",), "vllm": ("samplers/",), "prefect": ()}


def imported(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("package", list(ONLY))
def test_a_heavy_package_has_its_one_place_in_the_core(package):
    core = ROOT / "agentfly_core"
    users = [path for path in core.rglob("*.py") if package in {name.split(".")[0] for name in imported(path)}]
    assert [path for path in users if not str(path.relative_to(core)).startswith(ONLY[package])] == []


def test_the_core_knows_neither_flows_nor_tasks_and_tasks_know_no_flows():
    for folder, above in (("agentfly_core", {"flows", "tasks"}), ("tasks", {"flows"})):
        for path in (ROOT / folder).rglob("*.py"):
            assert not {name.split(".")[0] for name in imported(path)} & above, path


def test_the_files_of_the_record_are_named_in_one_place():
    code = [path for folder in ("agentfly_core", "flows", "tasks") for path in (ROOT / folder).rglob("*.py")]
    for name in ('"trajectories.parquet"', '"scores.parquet"'):
        assert [path.name for path in code if name in path.read_text()] == ["parquet.py"]


@pytest.mark.parametrize("lower", range(len(LAYERS)))
def test_a_lower_layer_does_not_import_a_higher_one(lower):
    higher = {f"agentfly_core.{name}" for layer in LAYERS[lower + 1 :] for name in layer}
    for name in LAYERS[lower]:
        assert not set(imported(ROOT / "agentfly_core" / f"{name}.py")) & higher, name


def test_the_record_needs_the_standard_library_only():
    names = {name.split(".")[0] for name in imported(ROOT / "agentfly_core/records/trajectory.py")}
    assert names <= {*sys.stdlib_module_names, "agentfly_core"}


def test_tools_and_records_load_neither_torch_nor_a_network_client():
    code = "import sys, agentfly_core.authoring.tool, agentfly_core.authoring.reward, agentfly_core.rollout.shard, agentfly_core.config.experiment;"
    code += "print([m for m in ('torch', 'httpx', 'mlflow', 'prefect', 'vllm') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


FORBIDDEN = {"eval", "exec", "compile", "sympify", "os.system", "os.popen", "yaml.load", "yaml.unsafe_load"}
OPENED_UP = {"shell", "trust_remote_code"}
RUNS_WHAT_IT_READS = {"pickle", "cPickle", "dill", "cloudpickle", "shelve", "marshal", "joblib"}


def dangers(path):
    """Where a file would run, or hand to a shell, what it was merely given: "line 12: eval"."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            if (name := ast.unparse(node.func)) in FORBIDDEN:
                yield f"line {node.lineno}: {name}"
            if name == "torch.load" and "weights_only=True" not in ast.unparse(node):
                yield f"line {node.lineno}: {name} without weights_only=True"
            if name.endswith(".from_pretrained") and "trust_remote_code=False" not in ast.unparse(node):
                yield f"line {node.lineno}: {name} without trust_remote_code=False"
            opened = {word.arg for word in node.keywords if ast.unparse(word.value) == "True"} & OPENED_UP
            yield from (f"line {node.lineno}: {word}=True" for word in opened)
    yield from (f"import {name}" for name in imported(path) if name.split(".")[0] in RUNS_WHAT_IT_READS)


@pytest.mark.parametrize("folder", ["agentfly_core", "flows", "tasks", "benchmarks"])
def test_nothing_runs_what_it_was_merely_given(folder):
    found = {str(path.relative_to(ROOT)): list(dangers(path)) for path in (ROOT / folder).rglob("*.py")}
    assert {path: what for path, what in found.items() if what} == {}


@pytest.mark.parametrize(
    "line",
    ["eval(x)", "yaml.load(x)", "run(x, shell=True)", "torch.load(x)", "AutoModel.from_pretrained(x)", "import pickle"],
)
def test_a_line_that_does_is_found(tmp_path, line):
    (tmp_path / "bad.py").write_text(line)
    assert len(list(dangers(tmp_path / "bad.py"))) == 1
