"""The commands of `agentfly`, one file a group. A signature declares the arguments of a command."""
