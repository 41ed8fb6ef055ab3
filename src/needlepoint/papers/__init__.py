"""Published figures: which points each needs and how it is drawn (one module per paper and topic, with `figures`),
how they are computed and written (`runner`, `folder`, `report`), and what to cite (`citations`)."""
