"""Importing this registers every drawing function of regard.support.drawing."""

from regard.show import figures as figures
from regard.show.page import atlas_page as atlas_page
from regard.show.page import training_page as training_page
from regard.show.page import write as write
from regard.show.terminal import atlas_changes as atlas_changes
from regard.show.terminal import atlas_timeline as atlas_timeline
from regard.show.terminal import atlases as atlases
from regard.show.terminal import effects as effects
from regard.show.terminal import heads as heads
from regard.show.terminal import heat_map as heat_map
from regard.show.terminal import traces as traces
