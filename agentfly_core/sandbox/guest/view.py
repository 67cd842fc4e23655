"""The file system that model-written code sees: interpreter, system libraries and programs,
numpy.
"""

import importlib.util
import os
import sys
import sysconfig
from pathlib import Path

from agentfly_core.sandbox.guest import kernel

BOX = Path("/box")
WORK = Path("/sandbox")
SCRATCH = {"work": str(WORK), "tmp": "/tmp", "shm": "/dev/shm"}
PACKAGES = ("numpy", "numpy.libs")
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
"""Folders of tasks in the layouts of Harbor and terminal-bench."""


def visible() -> list[Path]:
    """Return the visible files and folders of this machine.

    They are read-only and keep their paths.
    """
    shown = [*map(Path, _SYSTEM), Path(sysconfig.get_path("stdlib")), interpreter()]
    shown += Path(sys.base_prefix).glob("lib/libpython*")
    shown += [Path(path) for path in _LINKED if not os.path.islink(path)]
    return [path for path in dict.fromkeys(shown) if path.exists() and not _covered(path)]


def interpreter() -> Path:
    """The Python program that a virtual environment links to."""
    return Path(os.path.realpath(sys.executable))


def packages() -> list[Path]:
    spec = importlib.util.find_spec(PACKAGES[0])
    if spec is None or spec.origin is None:
        return []
    site = Path(spec.origin).parent.parent
    return [site / name for name in PACKAGES if (site / name).is_dir()]


def links() -> dict[str, str]:
    """Return the symbolic links of the root: `{"/bin": "usr/bin", "/app": "/sandbox/work"}`."""
    taken = {f"/{path.parts[1]}" for path in (*visible(), *packages())}
    free = {place: target for place, target in FOLDERS.items() if place not in taken}
    return {path: os.readlink(path) for path in _LINKED if os.path.islink(path)} | free


def enter() -> None:
    """Make the view the root of this process's own mount namespace."""
    folder, flags = Path("/sys"), kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC
    kernel.mount("none", "/", flags=kernel.MS_REC | kernel.MS_PRIVATE)
    kernel.mount("tmpfs", str(folder), "tmpfs", kernel.MS_NOSUID, "mode=0755,size=1m")
    for path in visible():
        kernel.set_read_only(str(_bind(path, folder)))
    # hides other packages of the interpreter
    others = folder / Path(sysconfig.get_path("stdlib"), "site-packages").relative_to("/")
    if others.is_dir():
        kernel.mount("tmpfs", str(others), "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "size=1m")
    for package in packages():
        if not _covered(package):
            kernel.set_read_only(str(_bind(package, folder)))
    if others.is_dir():
        kernel.set_read_only(str(others))
    for device in DEVICES:
        _bind(Path(device), folder)
    for place in ("proc", "box", *(place[1:] for place in SCRATCH.values())):
        (folder / place).mkdir(parents=True, exist_ok=True)
    for name, target in {**links(), **STREAMS}.items():
        (folder / name[1:]).symlink_to(target)
    for name, text in _WRITTEN.items():
        (folder / name[1:]).parent.mkdir(exist_ok=True)
        (folder / name[1:]).write_text(text)
    kernel.mount("proc", f"{folder}/proc", "proc", flags)
    kernel.pivot_root(str(folder))
    kernel.mount(
        "", "/", flags=kernel.MS_BIND | kernel.MS_REMOUNT | kernel.MS_RDONLY | kernel.MS_NOSUID
    )


def _covered(path: Path) -> bool:
    return any(Path(system) in path.parents for system in _SYSTEM)


def _bind(path: Path, folder: Path) -> Path:
    target = folder / path.relative_to("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.mkdir(exist_ok=True) if path.is_dir() else target.touch()
    kernel.mount(str(path), str(target), flags=kernel.MS_BIND | kernel.MS_REC)
    return target
