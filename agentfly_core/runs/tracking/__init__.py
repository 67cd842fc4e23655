"""Send a run's metrics, artifacts and results to MLflow."""
