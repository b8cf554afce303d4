"""What the files of a study hold, each record defined once; no torch, and nothing of the pipeline."""
