"""The flows that Prefect runs, and the commands of `agentfly`."""
