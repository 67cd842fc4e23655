"""IoU of a nano model's buildings before and after training, and after permuted rewards.

    python -m benchmarks.blueprint_learning [--seeds 1 2 3]

The same command continues interrupted runs (`runs/learning-blueprint-...`). The buildings are those
of the test problems, whose sizes are not in training.
"""

from benchmarks import harness, score_learning


def main() -> None:
    """Train the missing runs and print the table."""
    options = harness.parser(__doc__, seeds=[1, 2, 3]).parse_args()
    score_learning.show("blueprint", "building/iou", options.seeds)


if __name__ == "__main__":
    main()
