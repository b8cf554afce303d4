"""STAPO: reproduce, check and extend arXiv 2602.15620."""

__version__ = "0.1.0"
