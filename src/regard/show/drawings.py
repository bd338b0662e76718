"""Importing this registers every drawing function of regard.drawing."""

from regard.show import effects as effects
from regard.show import figures as figures
from regard.show import grades as grades
from regard.show import heads as heads
from regard.show import one_token as one_token
from regard.show import probe as probe
from regard.show import traces as traces
from regard.show import verdicts as verdicts
from regard.show.page import write as write
