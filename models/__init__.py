"""What a model is: where its files are, what its config says, how large it gets, and the torch decoder that runs it."""
