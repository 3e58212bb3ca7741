"""Archives in directories and object stores, and their return to a broker."""
