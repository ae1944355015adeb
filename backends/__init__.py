"""Engines that write text, behind one contract. Read `contract` first; the others are leaves or parts of one."""
