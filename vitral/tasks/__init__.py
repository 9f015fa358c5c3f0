"""What a label is: how it is encoded, what the network answers, what it learns by, and how well it did."""
