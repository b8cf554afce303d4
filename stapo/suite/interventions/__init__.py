"""Interventions: what one update does with and without silencing, from the same weights and the same rollout.

`job` does the repetitions of a checkpoint and writes their records, `trial` computes one of them: by
`updates` (single updates by hand), `arms` (the tokens that each silences) and `gradients` (of single tokens).
"""
