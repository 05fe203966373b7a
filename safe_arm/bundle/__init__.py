"""The proof that ships with a program: inputs with expected outputs, hashes and results, and their verification."""
