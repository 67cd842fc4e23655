"""Processes, services, files, devices and clocks of the machine; nothing of agents or training."""
