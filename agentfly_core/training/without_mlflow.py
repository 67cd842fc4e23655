"""`python -m agentfly_core.training.without_mlflow MODULE ...` runs a module as a program that has
no MLflow.

DeepSpeed imports it for its autotuner wherever it is installed: a second and a half for each
process that it starts.
"""

import runpy
import sys

if __name__ == "__main__":
    sys.modules["mlflow"] = None  # type: ignore[assignment]
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
