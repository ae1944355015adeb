"""Engines that write text, behind one contract. Read `contract` first; each other module is one leaf or a part of it."""
