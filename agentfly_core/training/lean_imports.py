"""Run a program with fewer imports: `python -m agentfly_core.training.lean_imports MODULE ...`.

DeepSpeed would import MLflow, and transformers would import scikit-learn. Both imports together
take two seconds. Garbage collection during imports takes another second, so it is disabled. The
program must call `gc.enable()` after its imports.
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
