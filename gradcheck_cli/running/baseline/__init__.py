"""What each pair was like when somebody last looked, and what has changed since."""
