"""Importing this makes every task, model and learner known by its name, to read specs from text."""

import needlepoint.learners
import needlepoint.models.attention
import needlepoint.tasks.attention_indexed
import needlepoint.tasks.single_location  # noqa: F401
