"""The proof beside the program: inputs with expected outputs, hashes and results, and the check of all of it."""
