"""MLflow: a run's metrics, artifacts and results are sent to it."""
