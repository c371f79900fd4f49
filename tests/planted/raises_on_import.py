"""A module that can't be imported."""

raise RuntimeError("this module needs a licence server")
