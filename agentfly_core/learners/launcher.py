"""DeepSpeed's launcher for the ranks of one machine: `python -m agentfly_core.learners.launcher --world_info ...`.

DeepSpeed imports MLflow for its autotuner where it is installed, a second and a half a process; not here.
"""

from __future__ import annotations

import sys

sys.modules["mlflow"] = None  # type: ignore[assignment]

from deepspeed.launcher.launch import main  # noqa: E402

if __name__ == "__main__":
    main()
