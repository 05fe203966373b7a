"""What is installed here, and whether it runs: every tool is run, none only looked up."""
