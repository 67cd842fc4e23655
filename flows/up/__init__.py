"""`agentfly up`: Prefect's and MLflow's servers, the deployments and a worker, by one command."""
