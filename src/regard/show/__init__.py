"""Drawing: traces and heads as text and as HTML. Importing it registers the drawing functions of regard.drawing."""

from regard.show import heads as heads
from regard.show import traces as traces
