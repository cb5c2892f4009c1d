"""Files, folders, optional packages, registries: what every part of the library uses."""
