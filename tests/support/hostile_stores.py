"""A store from a stranger: a valid run, changed to make its names and files lead elsewhere."""

import hashlib
import json
import os
import random
import socket
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

from agentfly_core.config.experiment import Adapter
from agentfly_core.models.adapter_artifact import FILE, remember
from agentfly_core.records.parquet import write_scores, write_trajectories
from agentfly_core.store.artifact import ArtifactKey
from agentfly_core.store.manifest import MANIFEST
from agentfly_core.store.store import Store
from agentfly_core.system.formats.checksummed_json import sealed
from tests.support.evaluated_runs import BASE, finished
from tests.support.stored_run import GOOD, SCORES, TOKENIZER, WRONG

RUN = "slow"
POLICY = f"runs/{RUN}/steps/000002/policy"
SHARD = f"runs/{RUN}/steps/000002/rollout-000"
SCORED = f"runs/{RUN}/steps/000002/scored"
START = f"runs/{RUN}/start.json"
RECORD = f"runs/{RUN}/run.json"
SECRET = "hunter2-of-the-user"

Hostile = Callable[[Path, Path, random.Random], None]
"""Changes a store, given a folder of the user beside it."""


def shared_run(store: Store) -> None:
    """Publish a finished run with an adapter on a shared model, and one shard of episodes."""
    with store.publish(ArtifactKey(BASE.uri, "model", "key", {})) as folder:
        (folder / "tokenizer.json").write_text(TOKENIZER.to_str())
        (folder / "model.safetensors").write_text("weights")
    base = store.artifact(BASE.uri)
    finished(store, RUN, "11000000", "adapter.rank=2")
    store.write_json(START, {"uri": base.uri, "digest": base.digest})
    with store.publish(ArtifactKey(SHARD, "rollout", "key", {})) as folder:
        write_trajectories(folder / "trajectories.parquet", [GOOD, WRONG])
    remember(store.root / POLICY, base, Adapter(rank=2))
    write_scores(store.root / SCORED / "scores.parquet", SCORES)
    for changed_artifact in (POLICY, SCORED):
        reseal(store.root / changed_artifact)
    (store.root / f"runs/{RUN}/lock.json").unlink()


def reseal(folder: Path) -> None:
    """Make a manifest match the files, as a stranger can."""
    manifest = json.loads((folder / MANIFEST).read_text())
    paths = [path for path in folder.iterdir() if path.name != MANIFEST]
    manifest["files"] = {path.name: entry(path.read_bytes()) for path in paths}
    write_sealed(folder / MANIFEST, manifest)


def entry(content: bytes) -> dict[str, Any]:
    return {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content)}


def write_sealed(path: Path, value: dict[str, Any]) -> None:
    kept = {key: item for key, item in value.items() if key not in ("checksum", "schema")}
    path.write_text(json.dumps(sealed(kept)))


def changed(path: Path, change: Callable[[Any], None], seal: bool = True) -> None:
    value = json.loads(path.read_text())
    change(value)
    if seal:
        write_sealed(path, value)
    else:
        path.write_text(json.dumps(value))


def leading_out(draw: random.Random, user: Path) -> str:
    """A name that leads out of a store, half of the time to a folder of the user."""
    if draw.random() < 0.5:
        return f"../{user.name}"
    return draw.choice(
        [
            f"../{user.name}",
            f"../../{user.parent.name}/{user.name}",
            str(user),
            f"runs/../../{user.name}",
            f"artifacts/../../{user.name}/notes",
            f"runs/{RUN}/../../../{user.name}",
            f"./../{user.name}",
            user.name,
            "conf",
            "/dev/zero",
            "~/.ssh",
            "",
            ".",
            "..",
            "runs//x",
            "runs/./x",
            "runs/x/",
            "runs/\0/x",
            "runs/\ud800",
            "runs/\x1b]0;title\x07",
            "runs/" + "x" * 300,
            "runs/own",
            "runs/own/steps/000009/policy",
            "artifacts/own/inside",
            "artifacts/own",
        ]
    )


def base_elsewhere(store: Path, user: Path, draw: random.Random) -> None:
    out = leading_out(draw, user)
    changed(store / POLICY / FILE, lambda value: value["base"].update(uri=out), seal=False)
    reseal(store / POLICY)


def base_misshapen(store: Path, user: Path, draw: random.Random) -> None:
    bases: list[Any] = [{"base": None}, {"base": {"uri": 7}}, {"base": [1], "shape": 2}]
    value = draw.choice([[], {}, "x", *bases])
    (store / POLICY / FILE).write_text(json.dumps(value))
    reseal(store / POLICY)


def entry_elsewhere(store: Path, user: Path, draw: random.Random) -> None:
    out = draw.choice([leading_out(draw, user), f"../../../../../../{user.name}/notes.txt"])
    where = draw.choice([POLICY, BASE.uri, SHARD])
    secret = entry((user / "notes.txt").read_bytes())
    changed(store / where / MANIFEST, lambda value: value["files"].update({out: secret}))


def entry_misshapen(store: Path, user: Path, draw: random.Random) -> None:
    size = draw.choice([-1, 2**60, True, "3", None, 1.5, []])
    where = draw.choice([POLICY, BASE.uri, SHARD])

    def change(value: Any) -> None:
        value["files"][draw.choice([*value["files"]])]["size"] = size

    changed(store / where / MANIFEST, change)


def input_elsewhere(store: Path, user: Path, draw: random.Random) -> None:
    out = leading_out(draw, user)
    changed(store / SCORED / MANIFEST, lambda value: value["inputs"].update({out: "9f2c"}))


def special(store: Path, user: Path, draw: random.Random) -> None:
    """Replace a file by a link, pipe, socket or folder; the manifest may have the target's hash."""
    read = [f"{POLICY}/weights", f"{BASE.uri}/model.safetensors", f"{SHARD}/trajectories.parquet"]
    others = draw.choice(
        [
            f"{POLICY}/{FILE}",
            f"{POLICY}/{MANIFEST}",
            f"{BASE.uri}/tokenizer.json",
            RECORD,
            START,
            f"runs/{RUN}/summary.json",
            f"runs/{RUN}/lock.json",
            f"runs/{RUN}/tags.json",
            f"runs/{RUN}/links.json",
        ]
    )
    path = store / draw.choice([*read, others])
    path.unlink(missing_ok=True)
    make_special(path, user, draw)
    manifest = path.parent / MANIFEST
    if path.is_file() and path != manifest and manifest.is_file():
        content = path.read_bytes()
        changed(manifest, lambda value: value["files"].update({path.name: entry(content)}))


def make_special(path: Path, user: Path, draw: random.Random) -> None:
    kinds = ["secret"] * 3 + ["zero", "pipe", "socket", "folder", "dangling", "user"]
    match draw.choice(kinds):
        case "secret":
            path.symlink_to(user / "notes.txt")
        case "zero":
            path.symlink_to("/dev/zero")
        case "pipe":
            os.mkfifo(path)
        case "socket":
            here = os.getcwd()
            os.chdir(path.parent)  # a socket's path has at most 107 bytes
            with socket.socket(socket.AF_UNIX) as server:
                server.bind(path.name)
            os.chdir(here)
        case "folder":
            path.mkdir()
        case "dangling":
            path.symlink_to(user / "new.txt")
        case "user":
            path.symlink_to(user)


def linked_folder(store: Path, user: Path, draw: random.Random) -> None:
    path = store / draw.choice(
        ["runs", "artifacts", f"runs/{RUN}", f"runs/{RUN}/steps", POLICY, BASE.uri, SHARD]
    )
    moved = path.with_name(f"{path.name}-moved")
    path.rename(moved)
    path.symlink_to(draw.choice([user, moved, user / "new"]))


def unlisted(store: Path, user: Path, draw: random.Random) -> None:
    make_special(store / draw.choice([POLICY, BASE.uri, SHARD]) / "unlisted", user, draw)


def record_elsewhere(store: Path, user: Path, draw: random.Random) -> None:
    out = leading_out(draw, user)
    pointer = {"uri": out, "digest": "9f2c"}
    fields: dict[str, Any] = draw.choice(
        [
            {"experiment": out},
            {"experiment": f"../{user.name}/evil"},
            {"origin": {"seed": f"{user}/pipe.yaml"}},
            {"origin": {"seed": f"{user}/exp.yaml"}},
            {"parent": {"run": out, **pointer}},
            {"reference": pointer},
            {"code": {"modules": {out: "9f2c"}, "repository": {"commit": out, "dirty": ""}}},
            {"code": {"modules": [out]}},
            {"revision": {"commit": "--upload-pack=touch /tmp/x"}},
            {"settings": {"steps": out}},
            {"settings": []},
            {"uid": None},
        ]
    )
    changed(store / RECORD, lambda value: value.update(fields))


def start_elsewhere(store: Path, user: Path, draw: random.Random) -> None:
    value = {"uri": leading_out(draw, user), "digest": "9f2c"}
    write_sealed(store / START, draw.choice([value, {"uri": 7}, {}]))


def lost(store: Path, user: Path, draw: random.Random) -> None:
    names = [f"{POLICY}/weights", f"{BASE.uri}/{MANIFEST}", f"{POLICY}/{MANIFEST}", RECORD]
    (store / draw.choice(names)).unlink()


HOSTILE: tuple[Hostile, ...] = (
    base_elsewhere,
    base_misshapen,
    entry_elsewhere,
    entry_misshapen,
    input_elsewhere,
    special,
    linked_folder,
    unlisted,
    record_elsewhere,
    start_elsewhere,
    lost,
)


def plant(folder: Path) -> None:
    """Write files of a user: a secret, an experiment and a pipe that blocks every reader."""
    (folder / "notes").mkdir(parents=True)
    for name in ("notes.txt", "notes/more.txt", "exp.yaml"):
        (folder / name).write_text(f"{name}: {SECRET}\n")
    os.mkfifo(folder / "pipe.yaml")


def tree(folder: Path, without: tuple[str, ...] = ()) -> dict[str, tuple[int, int, bytes | str]]:
    """Kind, mtime and content of all below a folder, by name."""
    names = {}
    for place, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if str(Path(place, name)) not in without]
        for path in (Path(place, name) for name in (*folders, *files)):
            status = path.lstat()
            content: bytes | str = b""
            if path.is_symlink():
                content = os.readlink(path)
            elif stat.S_ISREG(status.st_mode):
                content = path.read_bytes()
            changes = 0 if stat.S_ISDIR(status.st_mode) else status.st_mtime_ns
            names[str(path)] = (stat.S_IFMT(status.st_mode), changes, content)
    return names
