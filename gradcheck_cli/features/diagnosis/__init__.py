"""What a wrong gradient looks like, and which mistake that suggests."""
