"""HumanRank of a nano model's pipelines before and after training, and after permuted rewards.

    python -m benchmarks.mle [--seeds 1 2 3 4 5]

The same command continues interrupted runs (`runs/learning-mle-...`). The competitions are those of
the test problems, drawn anew for each seed.
"""

from benchmarks import harness, score_learning


def main() -> None:
    """Train the missing runs and print the table."""
    options = harness.parser(__doc__, seeds=[1, 2, 3, 4, 5]).parse_args()
    score_learning.show("mle", "human_rank", options.seeds)


if __name__ == "__main__":
    main()
