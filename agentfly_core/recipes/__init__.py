"""Tasks that are trained as they are; each folder is one task."""
