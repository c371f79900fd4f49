"""Features beside the core: each folder has its command, its logic and its part of the report.

A feature imports the core and no other feature. The core reaches features through `gradcheck_cli.hooks` only.
"""
