"""Problems, trajectories, scores and the ledger: types and their parquet."""
