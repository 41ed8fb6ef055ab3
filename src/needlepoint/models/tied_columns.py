"""Tied attention of a few directions: queries and keys are one low-rank map."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from needlepoint.core.specs import count, spec
from needlepoint.models.fields import FieldModel
from needlepoint.tasks.sequence import Fields


@spec
class LowRankTied(FieldModel):
    r"""eq:low-rank-tied. The attention matrix $\mathrm{softmax}(XQQ^\top X^\top)$ of a query $Q$ with `rank` columns.

    >>> ndl.LowRankTied().labels, ndl.LowRankTied(2).labels
    (('query',), ('query1', 'query2'))
    """

    flips: ClassVar[tuple[tuple[str, ...], ...]] = (("query",),)

    rank: int = count(lo=1, default=1, why="it is the number of columns of the query")

    def columns(self) -> Mapping[str, int]:
        return {"query": self.rank}

    def output(self, fields: Fields) -> Any:
        import jax

        return jax.nn.softmax(fields.query @ fields.query.T, axis=-1)
