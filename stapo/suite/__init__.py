"""What reproduces a paper with the core: studies, jobs, evaluation, analysis, publication."""
