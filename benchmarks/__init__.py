"""Cost of the guard against its peers. Each file prints its tables in one run."""
