"""The sandbox's own processes; standard library only."""
