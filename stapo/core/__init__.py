"""The idea and its exact update: objective, methods, update, trainer, conformance; nothing of the suite."""
