"""Read pickles, bare or in torch files, as inert data: nothing is imported, called or hashed."""
