"""The attention-indexed model: labels are the attention matrix of a hidden query-key matrix."""

from __future__ import annotations

from typing import ClassVar

from needlepoint.core.errors import InvalidParameter
from needlepoint.core.specs import Spec, choice, count, nested, real, spec
from needlepoint.tasks.targets import Target


@spec
class AttentionIndexed(Spec):
    r"""eq:indexed-model. Tokens $x_a \sim N(0, I_d)$, scores $z^0_{ab} = (x_a^\top S_0x_b -
    \delta_{ab}\mathrm{Tr}S_0)/\sqrt d$ plus symmetric noise, of variance `noise_var` on the diagonal and half of it
    off; labels $\mathrm{softmax}(\beta^*z^0)$ row by row, $T \times T$. One token has the linear label $z^0$ itself.

    `target` is the law of S0; `readout` says what a label is: the attention matrix ("seq2lab") or the tokens that it
    mixes, with an error divided by d ("seq2seq"), which is the same in the limit.

    >>> ndl.AttentionIndexed(tokens=2, target=ndl.Wishart(0.5), noise_var=0.5).components
    2.0
    """

    family: ClassVar[str] = "task"

    tokens: int = count(lo=1, why="it is the number of tokens of a sequence")
    target: Target = nested("target", why="it is the law of the hidden matrix")
    noise_var: float = real(
        lo=0.0, largest=1e12, default=0.0, why="it is the variance of the noise of a diagonal score"
    )
    beta_star: float = real(
        lo=0.0, open_lo=True, largest=1e6, default=1.0, why="it is the inverse temperature of labels"
    )
    readout: str = choice("seq2lab", "seq2seq", default="seq2lab")

    def check(self) -> None:
        if self.tokens == 1 and self.beta_star != 1:
            raise InvalidParameter(
                f"AttentionIndexed(tokens=1, beta_star={self.beta_star:g}): beta_star must be 1 (the label of one "
                "token is its score, which no softmax sees); scale the target instead."
            )

    def check_temperature(self, beta: float) -> None:
        """Refuse a model's inverse temperature that would change nothing."""
        if self.tokens == 1 and beta != 1:
            raise InvalidParameter(
                f"beta={beta:g} with tokens=1: beta must be 1 (the answer for one token is its score, which no softmax "
                "sees)."
            )

    @property
    def components(self) -> float:
        r"""N: how many independent numbers of a sequence's scores the labels show, $(T^2 + T - 2)/2$; one token shows
        its one score."""
        T = self.tokens
        return 1.0 if T == 1 else (T * T + T - 2) / 2
