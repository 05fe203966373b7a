"""Stock's passes and annotators, contained: what they raise on is left float."""
