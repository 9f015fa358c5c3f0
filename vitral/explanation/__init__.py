"""What the network attends to."""
