"""The settings of experiments and sites (machines): their pydantic models, and functions that read
their files.
"""
