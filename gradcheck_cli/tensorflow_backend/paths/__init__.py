"""What lies between the inputs and the outputs of a graph."""
