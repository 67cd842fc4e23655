"""Problems, trajectories, scores and the ledger: their types and parquet files."""
