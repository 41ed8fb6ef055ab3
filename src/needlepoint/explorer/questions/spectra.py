"""Spectra of a learned query-key matrix: the predicted law, thresholds, trained eigenvalues, and the user's own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from needlepoint.core.errors import InvalidParameter
from needlepoint.explorer.questions.asking import Emit
from needlepoint.explorer.questions.reading import Reader, finite

MOST = 600
"""The largest matrix that may be dropped on the page, and the largest d that is trained."""


@dataclass(frozen=True)
class LearnedSpectrum:
    """The law of the eigenvalues that a ridge penalty gives, the target's law, and the thresholds in alpha."""

    task: Any
    model: Any
    alpha: float
    lam: float

    @classmethod
    def read(cls, reader: Reader) -> LearnedSpectrum:
        task, model = reader.spec("task", "task"), reader.spec("model", "model")
        return cls(task, model, reader.number("alpha", 1e-3, 100.0), reader.number("lam", 1e-6, 100.0))

    def answer(self, emit: Emit, folders: tuple[str, ...]) -> None:
        import needlepoint as ndl
        from needlepoint.plotting.spectra import curve

        found = ndl.predict(self.task, self.model, ndl.Ridge(self.alpha, self.lam), throw=False, progress=False)
        law = found.spectrum
        if law is None:
            raise InvalidParameter(f"{found.status.sentence} There is no spectrum here; take a larger penalty.")
        x, density = curve(law)
        target = self.task.target
        emit(
            {
                "event": "spectrum",
                "x": x,
                "density": density,
                "atom": law.atom,
                "outliers": law.outliers,
                "target": [*target.outline()],
                "values": target.eigenvalues(),
                "target_rank": target.rank,
                "metrics": {n: [finite(e.value), finite(e.error)] for n, e in found.metrics.items()},
                "status": found.status.name,
                "trusted": bool(found.ok and found.stable is not False),
            }
        )
        marks = ndl.thresholds(self.task, self.model)
        names = ("interpolation", "recovery", "bayes_recovery")
        emit({"event": "thresholds", **{n: finite(getattr(marks, n).value) for n in names}, "notes": list(marks.notes)})


@dataclass(frozen=True)
class TrainedSpectra:
    """Eigenvalues of matrices that were trained on targets drawn at dimension d, one matrix after the other."""

    task: Any
    model: Any
    alpha: float
    lam: float
    d: int
    repeats: int

    @classmethod
    def read(cls, reader: Reader) -> TrainedSpectra:
        task, model = reader.spec("task", "task"), reader.spec("model", "model")
        penalty = reader.number("alpha", 1e-3, 100.0), reader.number("lam", 1e-6, 100.0)
        return cls(task, model, *penalty, reader.whole("d", 4, MOST), reader.whole("repeats", 1, 64))

    def answer(self, emit: Emit, folders: tuple[str, ...]) -> None:
        import needlepoint as ndl

        learner = ndl.Ridge(self.alpha, self.lam)
        for i in range(self.repeats):
            found = ndl.simulate(
                self.task, self.model, learner, d=self.d, repeats=1, seed=1 + i, samples=200, progress=False
            )
            assert found.spectrum is not None
            emit({"event": "eigenvalues", "values": found.spectrum.eigenvalues[0], "status": found.status.name})
            emit({"event": "progress", "done": (i + 1) / self.repeats})


@dataclass(frozen=True)
class Eigenvalues:
    """The eigenvalues of a matrix of the user's own, of its symmetric part."""

    rows: tuple[tuple[float, ...], ...]

    @classmethod
    def read(cls, reader: Reader) -> Eigenvalues:
        rows = reader.rows("rows", -1e12, 1e12, most=MOST)
        if len(rows) != len(rows[0]):
            raise InvalidParameter(f"the matrix has {len(rows)} rows and {len(rows[0])} columns; it must be square.")
        return cls(rows)

    def answer(self, emit: Emit, folders: tuple[str, ...]) -> None:
        matrix = np.array(self.rows)
        symmetric = (matrix + matrix.T) / 2
        twisted = float(np.linalg.norm(matrix - matrix.T) / (2 * (np.linalg.norm(matrix) or 1.0)))
        emit({"event": "eigenvalues", "values": np.linalg.eigvalsh(symmetric), "antisymmetric": twisted})
