"""The outcome of a contest: a row for each model, the margins between them, and the verdict in a sentence."""

from __future__ import annotations

import html
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from needlepoint.core.errors import InvalidParameter
from needlepoint.core.estimates import Estimate
from needlepoint.core.results import Measurement, Prediction
from needlepoint.core.specs import Spec
from needlepoint.core.text.jsonio import plain
from needlepoint.core.text.showing import Showing, table
from needlepoint.learners import Ridge

METRICS = ("excess_risk", "clean_risk", "risk")
"""What models are compared by: the first of these that all of them have. They differ by the label noise only."""

SURE = 3.0
"""Standard errors beyond which a measured margin counts; a numerical error is a bound, of which one is enough."""

MANY = 1000
"""Margins of more errors than this are not counted out."""


def is_resolved(prediction: Prediction) -> bool:
    """Return whether the equations were solved, so that there is a risk to compare."""
    return prediction.ok or prediction.status.finished


@dataclass(frozen=True)
class Entry:
    """One model with one learner: its prediction at its best penalties and, if it was trained, its measurement.

    >>> entry = ndl.contest(
    ...     ndl.SpikedSLR(2, snr=2.0),
    ...     [ndl.KeyValueAttention(ndl.Softmax()), ndl.KeyValueAttention(ndl.Linear())],
    ...     ndl.Population(),
    ... ).entries[0]
    >>> entry.name, entry.trusted, entry.penalties
    ('Softmax', True, None)
    """

    name: str
    model: Spec | None
    learner: Spec
    prediction: Prediction
    measurement: Measurement | None = None

    def measured(self, measurement: Measurement) -> Entry:
        """Return the entry with what training gave."""
        return replace(self, measurement=measurement)

    @property
    def penalties(self) -> tuple[float, ...] | None:
        """Return (lam_key, lam_value), or (lam,) where they are one; None where the learner has no penalty."""
        chosen = self.prediction.resolved[2] if self.prediction.resolved else self.prediction.learner
        if not isinstance(chosen, Ridge) or isinstance(chosen.lam, str):
            return None
        return chosen.lam if isinstance(chosen.lam, tuple) else (chosen.lam,)

    @property
    def trusted(self) -> bool:
        """Return whether the prediction is solved and nothing speaks against it."""
        return self.prediction.ok and self.prediction.stable is not False

    def risk(self, metric: str) -> Estimate:
        """Return the metric that models are compared by: measured where the model was trained, otherwise predicted."""
        source = self.prediction if self.measurement is None else self.measurement
        return source.metrics[metric]


@dataclass(frozen=True, repr=False, eq=False)
class Contest(Showing):
    """Models side by side, each at its own best penalties: what `contest` returns.

    `entries` has a model with each learner. `table` has a row for each, the best first; `verdict` says in words which
    is best, by how much, and whether that is to be trusted. The Bayes-optimal predictor, if it is among them, is the
    bound and no contestant.

    >>> models = [ndl.KeyValueAttention(ndl.Softmax()), ndl.KeyValueAttention(ndl.Linear()), None]
    >>> found = ndl.contest(ndl.SpikedSLR(2, snr=2.0), models, ndl.Population())
    >>> print(found.verdict)
    Softmax is best: excess risk 0.2248, 0.108534 below Linear; as good as Bayes; trusted.
    >>> [row["model"] for row in found.table]
    ['Bayes', 'Softmax', 'Linear']
    """

    task: Spec
    entries: tuple[Entry, ...]

    @property
    def metric(self) -> str:
        """Return the name of what models are compared by."""
        sources = [e.prediction if e.measurement is None else e.measurement for e in self.entries]
        found = next((m for m in METRICS if all(m in s.metrics for s in sources)), None)
        if found is None:
            raise InvalidParameter("contest: the models have no risk in common; compare models of one family.")
        return found

    @property
    def learners(self) -> tuple[Spec, ...]:
        """Return the learners that were asked for, each once."""
        return tuple(dict.fromkeys(e.learner for e in self.entries))

    @property
    def best(self) -> Entry:
        """Return the model of least risk with the first learner; one that is not solved only if there is no other."""
        return self.winner(self.learners[0])

    def winner(self, learner: Spec) -> Entry:
        """Return the model of least risk with this learner."""
        return self.ranked(learner)[0]

    def ranked(self, learner: Spec) -> list[Entry]:
        """Return the models with this learner, the least risk first and those that are not solved last; without Bayes.

        An entry with an infinite error is known to nothing and comes after those that are known.
        """
        mine = [e for e in self.entries if e.learner == learner and e.model is not None]
        return sorted(mine, key=lambda e: (not e.risk(self.metric).finite, e.risk(self.metric).value))

    def bound(self, learner: Spec) -> Entry | None:
        """Return the Bayes-optimal entry with this learner, if there is one."""
        return next((e for e in self.entries if e.learner == learner and e.model is None), None)

    def margin(self, entry: Entry) -> Estimate | None:
        """Return how far an entry's risk is above the best model's with the same learner; None for the best itself, for
        Bayes, and where one of the two is measured and the other is not."""
        best = self.winner(entry.learner)
        ours, theirs = entry.risk(self.metric), best.risk(self.metric)
        return None if entry is best or entry.model is None or ours.kind != theirs.kind else ours - theirs

    @property
    def table(self) -> list[dict[str, Any]]:
        """Return a row for each entry, by learner and then by risk: model, learner, penalties, risk, status, trusted,
        margin to the best, the same in units of its error (`margin_in_errors`) and what that unit is."""
        return [row for learner in self.learners for row in self._rows(learner)]

    def _rows(self, learner: Spec) -> list[dict[str, Any]]:
        bound = self.bound(learner)
        rows = []
        for entry in ([bound] if bound is not None else []) + self.ranked(learner):
            margin, risk = self.margin(entry), entry.risk(self.metric)
            rows.append(
                {
                    "model": entry.name,
                    "learner": entry.learner,
                    "penalties": entry.penalties,
                    self.metric: risk,
                    "status": entry.prediction.status.name,
                    "trusted": entry.trusted,
                    "margin": margin,
                    "margin_in_errors": None if margin is None else _ratio(margin),
                    "unit": "standard errors" if risk.kind == "stderr" else "bounds",
                }
            )
        return rows

    @property
    def verdict(self) -> str:
        """Return which model is best, its penalties and risk, the margin to the next, and whether it is trusted: one
        sentence for one learner, a sentence for each run of learners with the same outcome for several."""
        if len(self.learners) == 1:
            return self._sentence(self.learners[0])
        outcomes = [(self._outcome(learner), learner) for learner in self.learners]
        parts = []
        for outcome, group in itertools.groupby(outcomes, key=lambda pair: pair[0]):
            mine = [learner for _, learner in group]
            parts.append(f"{_range(mine)} {outcome}")
        text = "; ".join(parts)
        return f"{text[0].upper()}{text[1:]}."

    def _together(self, learner: Spec) -> list[Entry]:
        """Return the best model and all that cannot be told apart from it."""
        best, *others = self.ranked(learner)
        return [best, *(e for e in others if not is_apart(self.margin(e)))]

    def _outcome(self, learner: Spec) -> str:
        together = self._together(learner)
        names = " and ".join(e.name for e in together)
        doubt = "" if all(e.trusted for e in self.ranked(learner)) else " (not to be trusted)"
        return f"{names} cannot be told apart{doubt}" if len(together) > 1 else f"{names} is best{doubt}"

    def _sentence(self, learner: Spec) -> str:
        ranked, together, bound = self.ranked(learner), self._together(learner), self.bound(learner)
        best, metric = ranked[0], self.metric.replace("_", " ")
        shown = f"{_penalties(best)}{metric} {_digits(best.risk(self.metric))}"
        if best.measurement is not None:
            shown += f" at d = {best.measurement.d}"
        if len(together) > 1:
            others = ", ".join(
                f"{e.name}: {_penalties(e)}{metric} {_digits(e.risk(self.metric))}" for e in together[1:]
            )
            names = " and ".join(e.name for e in together)
            first = f"{names} cannot be told apart: {best.name}: {shown}, {others}"
        else:
            first = f"{best.name} is best: {shown}"
        rest = ranked[len(together)] if len(ranked) > len(together) else None
        if rest is not None:
            margin = self.margin(rest)
            unit = (
                f" ({_times(_ratio(margin))} standard errors)" if margin is not None and margin.kind == "stderr" else ""
            )
            first += f", {_digits(margin)}{unit} below {rest.name}" if margin is not None else f", before {rest.name}"
        parts = [first]
        if bound is not None and bound.risk(self.metric).kind == best.risk(self.metric).kind:
            above = best.risk(self.metric) - bound.risk(self.metric)
            parts.append(f"{_digits(above)} above {bound.name}" if is_apart(above) else f"as good as {bound.name}")
        doubted = [e for e in ranked if not e.trusted]
        parts += [f"{e.name} is not to be trusted ({e.prediction.status.name})" for e in doubted] or ["trusted"]
        if isinstance(learner, Ridge) and not isinstance(learner.lam, str):
            parts.append(
                "this is at one given penalty, which may suit one model better: lam='optimal' gives each its own"
            )
        return "; ".join(parts) + "."

    def _document(self) -> dict[str, Any]:
        return plain(
            {
                "kind": "contest",
                "task": self.task,
                "metric": self.metric,
                "verdict": self.verdict,
                "table": self.table,
                "predictions": [e.prediction for e in self.entries],
                "measurements": [e.measurement for e in self.entries if e.measurement is not None],
            }
        )

    def _records(self) -> list[dict[str, Any]]:
        """Return the rows of `table` with plain numbers: a penalty of the key and of the value, risk and error."""
        rows = []
        for row in self.table:
            risk, margin, lam = row[self.metric], row["margin"], row["penalties"]
            rows.append(
                {
                    "model": row["model"],
                    "learner": repr(row["learner"]),
                    "alpha": getattr(row["learner"], "alpha", None),
                    "lam_key": lam[0] if lam else None,
                    "lam_value": lam[-1] if lam else None,
                    self.metric: risk.value,
                    f"{self.metric}_error": risk.error,
                    "kind": risk.kind,
                    "status": row["status"],
                    "trusted": row["trusted"],
                    "margin": margin.value if margin is not None else None,
                    "margin_error": margin.error if margin is not None else None,
                    "margin_in_errors": row["margin_in_errors"],
                }
            )
        return rows

    def _texts(self) -> tuple[list[str], list[list[str]]]:
        """Return head and rows of the printed table."""
        several = len(self.learners) > 1
        head = [
            "model",
            *(["learner"] if several else []),
            "penalties",
            self.metric.replace("_", " "),
            "margin",
            "status",
        ]
        rows = []
        for row in self.table:
            lam, margin = row["penalties"], row["margin"]
            rows.append(
                [
                    row["model"],
                    *([_short(row["learner"])] if several else []),
                    " / ".join(f"{x:.3g}" for x in lam) if lam else "-",
                    _digits(row[self.metric]),
                    "-" if margin is None else f"{_digits(margin)}, {_times(row['margin_in_errors'])} {row['unit']}",
                    row["status"] + ("" if row["trusted"] else ", not trusted"),
                ]
            )
        return head, rows

    def _repr_html_(self) -> str:
        head, rows = self._texts()
        return table(rows, head, f"Contest: {self.task!r}, {self._asked()}") + f"<p>{html.escape(self.verdict)}</p>"

    def _asked(self) -> str:
        return ", ".join(map(repr, self.learners)) if len(self.learners) < 3 else f"{len(self.learners)} learners"

    def __str__(self) -> str:
        head, rows = self._texts()
        widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
        lines = [
            "  ".join(text.ljust(w) for text, w in zip(row, widths, strict=True)).rstrip() for row in [head, *rows]
        ]
        return "\n".join([f"Contest: {self.task!r}, {self._asked()}", *(f"  {line}" for line in lines), self.verdict])

    __repr__ = __str__


def is_apart(margin: Estimate | None) -> bool:
    """Return whether a margin is beyond its error: one bound, or SURE standard errors."""
    return (
        margin is not None and margin.finite and margin.value > (SURE if margin.kind == "stderr" else 1) * margin.error
    )


def _ratio(margin: Estimate | None) -> float:
    if margin is None or not margin.finite:
        return 0.0
    return margin.value / margin.error if margin.error > 0 else math.inf if margin.value else 0.0


def _times(ratio: float) -> str:
    return f"{ratio:.1f}" if ratio < MANY else f"over {MANY}"


def _digits(estimate: Estimate) -> str:
    """Return a text of an estimate with six digits at most: more would hide the difference that a contest is about."""
    return f"{estimate.value:.6g}" if estimate.error < 1e-6 * abs(estimate.value) else str(estimate)


def _penalties(entry: Entry) -> str:
    lam = entry.penalties
    if not lam:
        return ""
    return f"penalt{'y' if len(lam) == 1 else 'ies'} {' / '.join(f'{x:.2g}' for x in lam)}, "


def _short(learner: Spec) -> str:
    alpha = getattr(learner, "alpha", None)
    return repr(learner) if alpha is None else f"alpha {alpha:.3g}"


def _range(learners: Sequence[Spec]) -> str:
    alphas = [getattr(learner, "alpha", None) for learner in learners]
    if any(a is None for a in alphas):
        return "with " + " and ".join(map(repr, learners))
    return f"at alpha = {alphas[0]:.3g}" if len(alphas) == 1 else f"from alpha = {alphas[0]:.3g} to {alphas[-1]:.3g}"
