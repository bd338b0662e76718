"""The same findings in a terminal, as a figure, as a page: show draws what steps and watch hand it."""
