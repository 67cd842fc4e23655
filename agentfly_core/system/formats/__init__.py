"""Texts, JSON, YAML and hashes.

Files and texts are parsed strictly, and written in a fixed form.
"""
