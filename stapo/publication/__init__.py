"""What a finished study says of itself, and whether a published folder is what it says."""
