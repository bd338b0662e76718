"""Drawing: what traces and heads have measured, as text and as HTML. Importing it registers the forms of each type."""

from regard.show import traces as traces
