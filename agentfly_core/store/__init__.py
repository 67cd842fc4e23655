"""The store of artifacts (published folders), on a local disk or on object storage, and locks of
runs.
"""
