"""Any program, unmodified: watched from outside, its bad step explained, its training examined, its file patched."""
