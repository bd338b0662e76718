"""Drawing: reports, traces and pages as text and HTML. Importing it registers the drawing functions of regard.drawing."""

from regard.show import heads as heads
