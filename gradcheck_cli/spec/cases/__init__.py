"""Makes cases from merged ops, and applies every rule of the format that involves several keys."""
