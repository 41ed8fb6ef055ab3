"""Which points a published figure needs and how it is drawn; citations."""
