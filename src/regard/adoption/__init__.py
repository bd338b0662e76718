"""Adoption: the layouts of other people's attention modules, and taking their weights over."""
