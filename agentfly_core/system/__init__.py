"""Processes, services, files, devices and clocks of the machine."""
