"""The commands of the command line, one file a group: each declares its arguments beside what it
does.
"""
