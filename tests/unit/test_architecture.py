"""Imports: a room imports from the rooms below it, a door from all rooms, and only recipes and
algorithms import from a door.
"""

import ast
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from benchmarks.code_figures import Repository, definitions, vague_names
from tests.support.imported_packages import HEAVY, loaded
from tests.support.project import ROOT

LAYERS = [
    ["system.formats"],
    ["system"],
    ["config"],
    ["records"],
    ["authoring", "rl", "store"],
    ["sandbox.guest"],
    ["sandbox", "algorithms"],
    ["environments"],
    ["tools", "rewards"],
    ["datasets"],
    ["models"],
    ["inference", "training"],
    ["rollout"],
    ["gateway"],  # plays episodes, as agents do, for programs that agents start
    ["agents"],
    ["experiment"],
    ["runs"],
    ["runs.tracking", "pipeline"],
    ["pipeline.play", "reports.show", "testing"],
    ["reports.compare", "reports.nights", "pipeline.stages"],
    ["pipeline.loop"],
    ["recipes"],
    ["tasks", "flows.local"],
    ["flows"],
]
"""From the lowest to the highest; rooms on one line do not import each other."""
RANK = {room: rank for rank, layer in enumerate(LAYERS) for room in layer}
DOORS = ("agentfly_core", "agentfly_core.rl", "agentfly_core.sandbox")
READY_MADE = {"agents", "algorithms", "datasets", "environments", "rewards", "tools"}
RECIPES = ROOT / "agentfly_core/recipes"
SLOW = ("torch", "httpx", "aiohttp", "mlflow", "prefect", "vllm")
ONLY = {
    "mlflow": ("runs/tracking/",),
    "deepspeed": ("training/",),
    "vllm": ("inference/",),
    "prefect": (),
}


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


MODULES = {
    module_of(path): path
    for folder in ("agentfly_core", "flows", "tasks")
    for path in sorted((ROOT / folder).rglob("*.py"))
}
RECIPE_MODULES = [name for name in MODULES if name.startswith("agentfly_core.recipes.")]
CORE = [name for name in MODULES if name.startswith("agentfly_core")]


def room(module: str) -> str:
    """The room of a module: `records` of agentfly_core.records.parquet, `flows.local` of
    flows.local.doctor.
    """
    parts = module.removeprefix("agentfly_core.").split(".")
    inner = ".".join(parts[:2])
    return inner if inner in RANK else parts[0]


@cache
def imported(path: Path) -> list[str]:
    """The imports of a file, in functions and for types too; `a.b.c` for `from a.b import c`."""
    names: list[str] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            where = f"{path}:{node.lineno}"
            assert node.module and not node.level, f"{where} imports relative to itself"
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return names


@cache
def ours(module: str) -> list[str]:
    """The modules of ours that a module imports."""
    names = {n if n in MODULES else n.rpartition(".")[0] for n in imported(MODULES[module])}
    return sorted(names & MODULES.keys() - {module})


def test_every_module_has_a_room_in_the_table():
    assert {room(module) for module in MODULES} - RANK.keys() == {"agentfly_core", "reports"}
    assert {room(module) for module in CORE}.isdisjoint({"flows", "tasks"})


@pytest.mark.parametrize("module", sorted(MODULES.keys() - {*DOORS, *RECIPE_MODULES}))
def test_a_module_imports_from_its_room_and_from_below_it(module):
    # ready-made algorithms import what authors of algorithms import
    doors = {*DOORS} - ({"agentfly_core.rl"} if room(module) == "algorithms" else set())
    assert [name for name in ours(module) if name in doors] == [], (
        "a door is for authors: import from the module that defines it, such as authoring.tool"
    )
    elsewhere = [name for name in ours(module) if room(name) != room(module)]
    assert [name for name in elsewhere if RANK[room(name)] >= RANK[room(module)]] == []


@pytest.mark.parametrize("module", RECIPE_MODULES)
def test_a_recipe_imports_doors_and_generic_parts_only(module):
    own = module.split(".")[2]
    others = [name for name in ours(module) if name not in DOORS and room(name) not in READY_MADE]
    assert [name for name in others if name.split(".")[1:3] != ["recipes", own]] == []


def test_only_a_recipe_itself_names_its_modules():
    outside = MODULES.keys() - {*RECIPE_MODULES}
    assert [name for name in outside if "recipes." in MODULES[name].read_text()] == []


def test_no_modules_import_each_other_in_a_circle():
    done: set[str] = set()

    def follow(module: str, way: tuple[str, ...]) -> None:
        assert module not in way, " > ".join([*way[way.index(module) :], module])
        if module not in done:
            for name in ours(module):
                follow(name, (*way, module))
            done.add(module)

    for module in MODULES:
        follow(module, ())


def test_a_room_of_the_core_has_3_to_13_modules():
    core = ROOT / "agentfly_core"
    folders = {path.parent for path in core.rglob("*.py")} - {
        core,
        core / "reports",
        *(core / name for name in READY_MADE),
        RECIPES,
        *RECIPES.iterdir(),
    }
    sizes = {
        str(f.relative_to(core)): len([*f.glob("*.py")]) - (f / "__init__.py").exists()
        for f in folders
    }
    assert {name: size for name, size in sizes.items() if not 3 <= size <= 13} == {}
    assert sorted(path.name for path in core.iterdir() if path.is_file()) == [
        "__init__.py",
        "py.typed",
    ]


def test_only_import_paths_and_doors_import_by_name():
    by_name = {module for module, path in MODULES.items() if "import_module(" in path.read_text()}
    # imports of model-written programs and of programs that use OpenAI's API, never ours
    preloads = {"agentfly_core.sandbox.guest.server", "agentfly_core.gateway.fork_server"}
    lazy = {*DOORS} - {"agentfly_core.rl"}
    assert by_name == {*lazy, "agentfly_core.config.import_path", *preloads}


def homes(door: str) -> dict[str, str]:
    """Where each name of a door comes from, by its lazy table or its imports."""
    imports = {name.rpartition(".")[2]: name.rpartition(".")[0] for name in imported(MODULES[door])}
    return dict(vars(__import__(door, fromlist=["_HOMES"])).get("_HOMES", imports))


@pytest.mark.parametrize("door", DOORS)
def test_a_door_exports_the_names_that_it_imports(door):
    names = vars(__import__(door, fromlist=["__all__"]))["__all__"]
    assert names == sorted(names, key=lambda name: (not name.isupper(), name[0].islower(), name))
    assert {*names} == homes(door).keys()
    seen_by_mypy = {name for name in imported(MODULES[door]) if name.startswith("agentfly_core.")}
    assert seen_by_mypy == {f"{home}.{name}" for name, home in homes(door).items()}
    inside = {path.stem for path in MODULES[door].parent.iterdir()}
    assert inside.isdisjoint(names)


@pytest.mark.parametrize("door", DOORS)
def test_a_door_has_no_other_attributes(door):
    with pytest.raises(AttributeError, match=f"module '{door}' has no attribute 'nothing'"):
        _ = __import__(door, fromlist=["nothing"]).nothing


@pytest.mark.slow
def test_the_door_for_authors_loads_no_slow_package():
    code = "import sys, agentfly_core as a; [getattr(a, name) for name in a.__all__];"
    code += f"print([name for name in {SLOW} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_the_help_loads_no_package_of_a_command():
    assert loaded(ROOT, "--help") & {*HEAVY, "pydantic"} == set()


SHOWN = [
    ROOT / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "conf").rglob("*.yaml")),
    ROOT / "data/README.md",
    *sorted(RECIPES.glob("*/README.md")),
    *sorted((ROOT / "flows/project_template").rglob("*.txt")),
]
WITH_PARTS = (*READY_MADE, "recipes", "inference.templates")
READY_MADE_PARTS = tuple(f"agentfly_core.{name}." for name in WITH_PARTS)


@pytest.mark.parametrize("path", SHOWN, ids=lambda path: path.name)
def test_examples_for_authors_import_through_doors(path):
    lines = [line.split() for line in path.read_text().splitlines()]
    froms = [words[1] for words in lines if words[:1] == ["from"] and words[2:3] == ["import"]]
    plain = [words[1].rstrip(",") for words in lines if words[:1] == ["import"] and len(words) > 1]
    own_names = [name for name in froms + plain if name.split(".")[0] == "agentfly_core"]
    through = {name for name in own_names if not name.startswith(READY_MADE_PARTS)}
    assert through <= {*DOORS, "agentfly_core.testing"}


@pytest.mark.parametrize("door", DOORS)
def test_every_name_of_a_door_is_documented(door):
    words = {word for path in SHOWN for word in re.findall(r"\w+", path.read_text())}
    assert homes(door).keys() - words == set()


@pytest.mark.slow
def test_the_testing_kit_is_only_for_tests_and_loads_fast():
    users = [name for name in MODULES if any(room(used) == "testing" for used in ours(name))]
    assert [name for name in users if room(name) != "testing"] == []
    unwanted = ("pytest", "_pytest", "transformers", *SLOW)
    code = "import sys, agentfly_core.testing;"
    code += f"print([name for name in {unwanted} if name in sys.modules])"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.slow
def test_tests_import_nothing_from_other_tests():
    for path in (ROOT / "tests").rglob("*.py"):
        ours = [name for name in imported(path) if name.split(".")[0] == "tests"]
        assert [name for name in ours if not name.startswith("tests.support")] == [], path


@pytest.mark.parametrize("package", list(ONLY))
def test_a_heavy_package_is_imported_in_one_place(package):
    core = ROOT / "agentfly_core"
    users = [
        path
        for path in core.rglob("*.py")
        if package in {name.split(".")[0] for name in imported(path)}
    ]
    assert [
        path for path in users if not str(path.relative_to(core)).startswith(ONLY[package])
    ] == []


def test_tasks_do_not_import_the_store():
    paths = sorted((ROOT / "tasks").rglob("*.py"))
    assert sum(len(path.read_text().splitlines()) for path in paths) <= 250
    assert [name for path in paths for name in imported(path) if ".store." in name] == []


def test_one_module_names_the_files_of_the_record():
    code = [
        path
        for folder in ("agentfly_core", "flows", "tasks")
        for path in (ROOT / folder).rglob("*.py")
    ]
    for name in ('"trajectories.parquet"', '"scores.parquet"'):
        assert [path.name for path in code if name in path.read_text()] == ["parquet.py"]


def test_type_names_are_unique_and_variables_not_vague():
    repository = Repository.read(ROOT)
    assert [name for name, modules in definitions(repository).items() if modules > 1] == []
    assert vague_names(repository) == {}


def test_the_record_imports_the_standard_library_only():
    names = {name.split(".")[0] for name in imported(ROOT / "agentfly_core/records/trajectory.py")}
    assert names <= {*sys.stdlib_module_names, "agentfly_core"}


FORBIDDEN = {
    "eval",
    "exec",
    "compile",
    "sympify",
    "os.system",
    "os.popen",
    "yaml.load",
    "yaml.unsafe_load",
}
OPENED_UP = {"shell", "trust_remote_code"}
RUNS_WHAT_IT_READS = {"pickle", "cPickle", "dill", "cloudpickle", "shelve", "marshal", "joblib"}


def dangers(path):
    """The lines of a file that would run given text, in Python or a shell: "line 12: eval"."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            if (name := ast.unparse(node.func)) in FORBIDDEN:
                yield f"line {node.lineno}: {name}"
            if name == "torch.load" and "weights_only=True" not in ast.unparse(node):
                yield f"line {node.lineno}: {name} without weights_only=True"
            if name.endswith(".from_pretrained") and "trust_remote_code=False" not in ast.unparse(
                node
            ):
                yield f"line {node.lineno}: {name} without trust_remote_code=False"
            opened = {
                word.arg for word in node.keywords if ast.unparse(word.value) == "True"
            } & OPENED_UP
            yield from (f"line {node.lineno}: {word}=True" for word in opened)
    yield from (
        f"import {name}" for name in imported(path) if name.split(".")[0] in RUNS_WHAT_IT_READS
    )


@pytest.mark.slow
@pytest.mark.parametrize("folder", ["agentfly_core", "flows", "tasks", "benchmarks"])
def test_no_module_runs_given_code(folder):
    lines_of = {
        str(path.relative_to(ROOT)): list(dangers(path)) for path in (ROOT / folder).rglob("*.py")
    }
    assert {path: what for path, what in lines_of.items() if what} == {}


@pytest.mark.parametrize(
    "line",
    [
        "eval(x)",
        "yaml.load(x)",
        "run(x, shell=True)",
        "torch.load(x)",
        "AutoModel.from_pretrained(x)",
        "import pickle",
    ],
)
def test_a_line_that_runs_given_code_is_detected(tmp_path, line):
    (tmp_path / "bad.py").write_text(line)
    assert len(list(dangers(tmp_path / "bad.py"))) == 1
