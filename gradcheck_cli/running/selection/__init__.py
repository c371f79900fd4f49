"""Which of the cases that specs hold are run, and in which order told; never imports the code under test."""
