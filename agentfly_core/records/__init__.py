"""Types and parquet files for problems, trajectories, scores and the outcomes of problems."""
