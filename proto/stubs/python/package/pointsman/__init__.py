"""Client stubs of Pointsman; see pointsman.v1."""
