"""Training with TRL: changes to its GRPOTrainer, and the run from prompts to published weights."""
