"""A map of what is delegated: small nets of public libraries, each target, ours beside stock."""
