"""Chat templates, which are programs of someone else's, run in a process of their own. Begin at `traits`."""
