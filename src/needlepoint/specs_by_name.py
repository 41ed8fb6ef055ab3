"""Importing this makes every task, model and learner known by its name, to read specs from text."""

import needlepoint.learners
import needlepoint.models.attention
import needlepoint.models.heads
import needlepoint.models.tied_columns
import needlepoint.tasks.attention_indexed
import needlepoint.tasks.needles
import needlepoint.tasks.positional_semantic
import needlepoint.tasks.several_relevant
import needlepoint.tasks.sign_labels
import needlepoint.tasks.single_location  # noqa: F401
