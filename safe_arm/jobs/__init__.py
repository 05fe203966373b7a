"""Many command lines at once: in processes here or on a Dask cluster, each with a row of its own."""
