"""Which values share a domain, and how wide it is."""
