"""The file system that sandboxed code sees.

This file system contains system libraries and programs, and either a Python interpreter with numpy,
pandas and scikit-learn, or the files of a program.
"""

import importlib.util
import os
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path

from agentfly_core.sandbox.guest import kernel

BOX = Path("/box")
WORK = Path("/sandbox")
SCRATCH = {"work": str(WORK), "tmp": "/tmp", "shm": "/dev/shm"}
PACKAGES = (
    *("numpy", "numpy.libs", "pandas", "dateutil", "six.py", "sklearn", "scikit_learn.libs"),
    *("scipy", "scipy.libs", "joblib", "cloudpickle", "narwhals", "threadpoolctl.py"),
)
EMPTIED = ("sklearn/datasets/data",)
"""Folders that appear empty in the sandbox, because their data sets may contain answers."""
_SYSTEM = (
    "/usr/bin",
    "/usr/lib",
    "/usr/lib64",
    "/usr/share/zoneinfo",
    "/etc/ld.so.cache",
    "/etc/alternatives",
)
_LINKED = ("/bin", "/lib", "/lib64", "/lib32", "/sbin")
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_WRITTEN = {
    "/etc/passwd": "sandbox:x:1000:1000::/sandbox:/bin/sh\n",
    "/etc/group": "sandbox:x:1000:\n",
    "/etc/hosts": "127.0.0.1 localhost\n",
    "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
}
STREAMS = {
    "/dev/fd": "/proc/self/fd",
    "/dev/stdin": "/proc/self/fd/0",
    "/dev/stdout": "/proc/self/fd/1",
    "/dev/stderr": "/proc/self/fd/2",
}

FOLDERS = {"/app": f"{WORK}/work", "/tests": f"{WORK}/tests", "/logs": f"{WORK}/logs"}
"""Symbolic links in the sandbox, with the folder names that Harbor and terminal-bench tasks use."""


def visible() -> list[Path]:
    """Return the files and folders of this machine that are visible in the sandbox.

    In the sandbox, these files and folders have the same paths and are read-only.
    """
    libraries = Path(sys.base_prefix).glob("lib/libpython*")
    return with_system([Path(sysconfig.get_path("stdlib")), interpreter(), *libraries])


def with_system(paths: Iterable[Path]) -> list[Path]:
    """Return the folders of the system, such as /usr/bin, and the given paths.

    Paths that do not exist, and paths inside another returned folder, are left out.
    """
    shown = [*map(Path, _SYSTEM), *(Path(path) for path in _LINKED if not os.path.islink(path))]
    shown = [path for path in dict.fromkeys([*shown, *paths]) if path.exists()]
    return [path for path in shown if not _covered(path, shown)]


def interpreter() -> Path:
    """Return the path of the Python program, with all symbolic links resolved."""
    return Path(os.path.realpath(sys.executable))


def packages() -> list[Path]:
    spec = importlib.util.find_spec(PACKAGES[0])
    if spec is None or spec.origin is None:
        return []
    site = Path(spec.origin).parent.parent
    return [site / name for name in PACKAGES if (site / name).exists()]


def shown_at(package: Path) -> Path:
    """Return the path of a package in the sandbox.

    A package in a folder that the sandbox replaces, such as /tmp, has the path `/packages/NAME`.
    Any other package keeps the path `package`.
    """
    hidden = any(package.is_relative_to(folder) for folder in SCRATCH.values())
    return Path("/packages", package.name) if hidden else package


def sites() -> list[str]:
    """Return the folders in the sandbox that contain Python packages."""
    return [*dict.fromkeys(str(shown_at(package).parent) for package in packages())]


def emptied() -> list[Path]:
    """Return the paths of the folders that appear empty in the sandbox."""
    shown = {package.name: package for package in packages()}
    names = [Path(name) for name in EMPTIED if name.partition("/")[0] in shown]
    return [shown_at(shown[name.parts[0]]).joinpath(*name.parts[1:]) for name in names]


def links(shown: Iterable[Path]) -> dict[str, str]:
    """Return the symbolic links in the root directory of the sandbox: `{"/bin": "usr/bin", "/app":
    "/sandbox/work"}`.

    `shown` has the files and folders of this machine that are visible in the sandbox. A link such
    as `/app` is left out if `shown` contains `/app` or a path below `/app`.
    """
    taken = {f"/{path.parts[1]}" for path in shown}
    free = {place: target for place, target in FOLDERS.items() if place not in taken}
    return {path: os.readlink(path) for path in _LINKED if os.path.islink(path)} | free


def enter() -> None:
    """Move this process into the file system of the sandbox, in its own mount namespace."""
    folder, flags = new_root(), kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC
    show(visible(), folder)
    # an empty mount hides all other packages of the interpreter
    others = folder / Path(sysconfig.get_path("stdlib"), "site-packages").relative_to("/")
    if others.is_dir():
        kernel.mount("tmpfs", str(others), "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "size=1m")
    for package in packages():
        if not _covered(package, map(Path, _SYSTEM)):
            kernel.set_read_only(str(_bind(package, folder, shown_at(package))))
    for empty in emptied():
        hidden = str(folder / empty.relative_to("/"))
        kernel.mount("tmpfs", hidden, "tmpfs", kernel.MS_RDONLY | kernel.MS_NOSUID, "size=4k")
    if others.is_dir():
        kernel.set_read_only(str(others))
    kernel.mount("proc", f"{folder}/proc", "proc", flags)
    become_root(folder, [*visible(), *map(shown_at, packages())])


def new_root() -> Path:
    """Mount an empty root directory for the sandbox, and return its path.

    Other processes do not see the mount, because this process has its own mount namespace.
    """
    folder = Path("/sys")
    kernel.mount("none", "/", flags=kernel.MS_REC | kernel.MS_PRIVATE)
    kernel.mount("tmpfs", str(folder), "tmpfs", kernel.MS_NOSUID, "mode=0755,size=1m")
    for place in ("proc", "box", *(place[1:] for place in SCRATCH.values())):
        (folder / place).mkdir(parents=True)
    return folder


def show(paths: Iterable[Path], folder: Path) -> None:
    """Make files and folders visible in the new root `folder`.

    Below `folder`, they have the same paths as in the old root. They are read-only.
    """
    for path in paths:
        kernel.set_read_only(str(_bind(path, folder)))


def become_root(folder: Path, shown: Iterable[Path]) -> None:
    """Complete the new root `folder` with devices, links and system files, and change into it.

    `shown` are the paths that `folder` already contains. `folder` becomes the root directory of
    this process.
    """
    for device in DEVICES:
        _bind(Path(device), folder)
    for name, target in {**links(shown), **STREAMS}.items():
        (folder / name[1:]).symlink_to(target)
    for name, text in _WRITTEN.items():
        (folder / name[1:]).parent.mkdir(exist_ok=True)
        (folder / name[1:]).write_text(text)
    kernel.pivot_root(str(folder))
    kernel.mount(
        "", "/", flags=kernel.MS_BIND | kernel.MS_REMOUNT | kernel.MS_RDONLY | kernel.MS_NOSUID
    )


def _covered(path: Path, folders: Iterable[Path]) -> bool:
    """Whether a path is in one of these folders, either directly or through a link such as /bin."""
    place = Path(os.path.realpath(path.parent), path.name)
    return any(folder in (*place.parents, *path.parents) for folder in folders)


def _bind(path: Path, folder: Path, place: Path | None = None) -> Path:
    """Mount a path of this machine in the new root `folder`, and return the path of the mount.

    In the new root, the path stays the same, or becomes `place`.
    """
    target = folder / (place or path).relative_to("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.mkdir(exist_ok=True) if path.is_dir() else target.touch()
    kernel.mount(str(path), str(target), flags=kernel.MS_BIND | kernel.MS_REC)
    return target
