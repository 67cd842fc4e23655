"""`python -m agentfly_core.training.lean_imports MODULE ...` runs a module as a program without
packages that would be imported for nothing.

DeepSpeed imports MLflow for its autotuner and transformers scikit-learn for assisted generation
wherever they are installed: two seconds for each process that it starts. To look for garbage among
what is being imported takes another one: the module turns that on, `gc.enable()`, when it is there.
"""

import gc
import runpy
import sys

NEEDLESS = ("mlflow", "sklearn")

if __name__ == "__main__":
    gc.disable()
    for name in NEEDLESS:
        sys.modules[name] = None  # type: ignore[assignment]
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
