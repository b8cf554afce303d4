"""Base models: from the Hub at a pinned revision, or built from scratch in the tiny world."""
