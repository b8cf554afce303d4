"""Evaluation: responses through lm-eval, grading, scores, statistics."""
