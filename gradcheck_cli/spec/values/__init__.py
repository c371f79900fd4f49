"""The values of inputs."""
