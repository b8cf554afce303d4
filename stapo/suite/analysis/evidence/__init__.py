"""Figures and tables computed from the token records, and entropy quantiles from the metrics."""
