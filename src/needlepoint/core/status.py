"""How a computation ended, as integer codes that fit into the arrays of a batch, each with a sentence for users."""

from __future__ import annotations

import enum


class Status(enum.IntEnum):
    """How a computation ended; `sentence` is what a user reads.

    >>> print(ndl.Status.CONVERGED.name, ndl.Status.CONVERGED.ok)
    CONVERGED True
    """

    CONVERGED = 0
    MAX_STEPS = 1
    NOISE_LIMITED = 2
    DIVERGED = 3
    UNBOUNDED = 4
    INFEASIBLE = 5
    UNSTABLE = 6
    FINISHED = 7

    @property
    def sentence(self) -> str:
        return _SENTENCES[self]

    @property
    def ok(self) -> bool:
        """Return whether the numbers can be used as they are. `Result.ok` also admits infima that are not attained."""
        return self in (Status.CONVERGED, Status.FINISHED)

    @property
    def finished(self) -> bool:
        """Return whether the equations are solved or the steps done, whether or not the answer is to be trusted."""
        return self in (Status.CONVERGED, Status.UNSTABLE, Status.FINISHED)


_SENTENCES = {
    Status.CONVERGED: "the computation finished and its numbers meet the stated error.",
    Status.FINISHED: "the run did all the steps that were asked for; where it was going is in the trajectory.",
    Status.MAX_STEPS: "the step limit was reached before the residual fell below its tolerance.",
    Status.NOISE_LIMITED: "the sampling noise of the integration is larger than the tolerance asked for.",
    Status.DIVERGED: "the iteration left the finite numbers; a smaller step size is the usual remedy.",
    Status.UNBOUNDED: "the infimum is approached as a parameter goes to its limit and is not attained.",
    Status.UNSTABLE: "the equations are solved, but their answer is not to be trusted here; the notes say why.",
    Status.INFEASIBLE: "the overlaps belong to no set of vectors (their Gram matrix is not positive).",
}
