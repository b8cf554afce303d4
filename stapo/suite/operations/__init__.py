"""Commands for users around the runs of studies."""
