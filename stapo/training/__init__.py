"""Training on TRL: what differs from its GRPOTrainer, and the run from prompts to published weights."""
