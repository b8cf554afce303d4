"""Publication of a finished study, and verification of a published results folder."""
