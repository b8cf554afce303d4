"""Tables of evidence: one file each, found by `stapo.exhibits.declared`."""
