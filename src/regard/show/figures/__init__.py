"""Figures for papers and notebooks, by matplotlib, which is imported when the first one is drawn.

Importing this registers the drawing functions of regard.support.drawing.as_figure.
"""

from regard.show.figures import heads as heads
from regard.show.figures import one_head as one_head
from regard.show.figures import traces as traces
from regard.show.figures.canvas import save_figure as save_figure
from regard.show.figures.one_head import draw_weights as draw_weights
