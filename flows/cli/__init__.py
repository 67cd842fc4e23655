"""The commands of `agentfly`, one file per group.

The signature of a function declares the arguments of its command.
"""
