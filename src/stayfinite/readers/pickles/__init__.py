"""Pickles, bare and in torch's files, as inert data: nothing that they name is imported, called or hashed."""
