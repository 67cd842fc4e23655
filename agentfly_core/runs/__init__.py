"""A run, its record, its reports, MLflow and DVC."""
