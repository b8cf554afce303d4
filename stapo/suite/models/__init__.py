"""Base models: downloaded from the Hub at a pinned revision, or tiny ones built from scratch."""
