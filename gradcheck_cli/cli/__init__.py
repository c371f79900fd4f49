"""Commands: parse, wire, exit code. Imports nothing heavy at the top."""
