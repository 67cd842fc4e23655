"""The commands of `agentfly`, one file per group.

A function's signature declares the arguments of its command.
"""
