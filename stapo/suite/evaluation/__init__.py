"""Evaluation: responses to lm-eval tasks, grading, scores, statistics."""
