"""Cases as pytest's tests."""
