"""Cases that run on the workers of a Dask cluster."""
