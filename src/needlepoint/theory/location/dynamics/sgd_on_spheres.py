"""Online SGD on unit spheres, exact in law at a cost that does not depend on d; for free norms see `flow`."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import erf

from needlepoint.channels.branches import classify
from needlepoint.core.answers.trajectories import named, scale_at, scale_of_step, summarise
from needlepoint.core.dispatch import rule
from needlepoint.core.errors import NoTheory
from needlepoint.core.options import PredictionOptions
from needlepoint.core.overlaps import frame_coordinates
from needlepoint.core.results import Prediction, Trajectory
from needlepoint.learners import OnlineSGD, record_steps
from needlepoint.losses import squared_error
from needlepoint.models.attention import KeyValueAttention
from needlepoint.numerics.arrays import Array
from needlepoint.tasks.single_location import SpikedSLR
from needlepoint.theory.location.dynamics.accuracy import ACCURACY
from needlepoint.theory.location.dynamics.descent import require_spheres
from needlepoint.theory.location.dynamics.flow import predict_sgd_limit
from needlepoint.theory.location.dynamics.starts import start_overlaps
from needlepoint.theory.location.erf import closed_form as erf_closed_form


class Frame(NamedTuple):
    r"""eq:sgd-frame. $k = (\kappa, \eta, k_3, 0)$ and $v = (\theta, \nu, v_3, v_4)$ in the frame $k^*, v^*$,
    residual of $k$, residual of $v$; each an array over runs."""

    kappa: Array
    eta: Array
    k3: Array
    theta: Array
    nu: Array
    v3: Array
    v4: Array

    def five(self) -> Array:
        rho = self.kappa * self.theta + self.eta * self.nu + self.k3 * self.v3
        return jnp.stack([self.kappa, self.nu, self.theta, self.eta, rho])


@rule("predict", SpikedSLR, KeyValueAttention, OnlineSGD, when=squared_error)
def predict_sgd(
    task: SpikedSLR, model: KeyValueAttention, learner: OnlineSGD, options: PredictionOptions
) -> Prediction:
    """Return runs of eq:sgd-law, exact in law at the learner's d, with standard errors over the runs.

    With free norms the answer is the limit eq:location-sgd.
    """
    if not model.unit_norm:
        return predict_sgd_limit(task, model, learner, options)
    require_spheres(model, learner)
    activation = model.activation
    learner.require_unit_starts()
    length, d = task.fixed_length, learner.d
    assert d is not None
    if length is None:
        raise NoTheory(f"no rule for OnlineSGD with random lengths ({task!r}); give tokens as a whole number.")
    starts = start_overlaps(learner, options.seed)
    state = Frame(*(jnp.asarray(x) for x in frame_coordinates(starts)))
    runs = starts.shape[1]
    c = erf_closed_form.constants(task, model)
    draw = _Noise(learner.batch, length, d, runs, options.seed)
    # noise is drawn in blocks of steps whatever the records, so that a run does not depend on what is recorded of it
    block = min(ACCURACY.block, max(1, ACCURACY.budget // draw.normals_a_step))
    marks = record_steps(learner.steps, learner.record_every)
    history, done, noise = [np.asarray(state.five())], 0, ()
    for mark in marks[1:]:
        while done < mark:
            first = done % block
            if first == 0:
                noise = tuple(jnp.asarray(x) for x in draw(block))
            last = min(block, first + mark - done)
            state = _advance(
                learner.batch, c, state, float(done - first), first, last, learner.lr, learner.schedule, *noise
            )
            done += last - first
        history.append(np.asarray(state.five()))
        options.progress(done / learner.steps)
    paths = np.stack(history, axis=-1)  # (5, runs, records)
    scales = scale_at(c["scale"], learner.schedule, marks)
    risk = np.asarray(_risks({**c, "scale": scales}, paths))
    final = model.replace(activation=activation.replace(scale=float(scales[-1])))
    ends = classify(task, final, paths[:, :, -1])
    trajectory = Trajectory(np.array(marks), scales, named(paths), risk, ends)
    return Prediction(
        task,
        model,
        learner,
        **summarise(
            trajectory,
            task.noise_var,
            gauge=activation.odd and not learner.given,
            starts=len(learner.given) or 1,
        ),
        branch=ends[0] if len(set(ends)) == 1 else None,
        resolved=(task, model, learner),
        exact=True,
        seed=options.seed,
    )


_risks = jax.jit(erf_closed_form.unit_excess_risk)


class _Noise:
    """The random numbers of a block of steps, runs last: NumPy draws them several times faster than XLA."""

    def __init__(self, batch: int, length: int, d: int, runs: int, seed: int):
        self.rng = np.random.Generator(np.random.SFC64([seed, 3]))
        self.shapes = ((2, batch, length - 1, runs), (4, batch, runs), (batch, runs), (9, runs))
        self.degrees, self.runs = (d - 4, d - 5), runs
        self.normals_a_step = sum(int(np.prod(s)) for s in self.shapes)

    def __call__(self, block: int) -> tuple[np.ndarray, ...]:
        """Return the numbers of the next `block` steps, arrays with steps first and runs last."""
        drawn = [self.rng.standard_normal((block, *shape)) for shape in self.shapes]
        chi = [np.sqrt(self.rng.chisquare(degree, (block, self.runs))) for degree in self.degrees]
        return (*drawn, np.stack(chi, axis=1))


@functools.partial(jax.jit, static_argnums=0)
def _advance(
    batch: int,
    c: dict[str, Any],
    state: Frame,
    block_start: Array,
    first: Array,
    last: Array,
    lr: Array,
    schedule: Array,
    others: Array,
    relevant: Array,
    label: Array,
    frame: Array,
    chi: Array,
) -> Frame:
    def step(i: Array, state: Frame) -> Frame:
        at = {**c, "scale": scale_of_step(c["scale"], schedule, block_start + i)}
        return sgd_step(batch, at, state, lr, others[i], relevant[i], label[i], frame[i], chi[i])

    return jax.lax.fori_loop(first, last, step, state)


def sgd_step(
    batch: int,
    c: dict[str, Any],
    state: Frame,
    lr: Array,
    others: Array,
    relevant: Array,
    label: Array,
    frame: Array,
    chi: Array,
) -> Frame:
    r"""eq:sgd-law. Return the state after one step of SGD on the unit spheres, in law.

    A token enters through $a = r\sigma'(k\cdot x)(v\cdot x)$ and $c = r\sigma(k\cdot x)$ with $r = \frac2B(f - y)$:
    the gradients are $\sum ax$ and $\sum cx$. Other tokens need only $(k\cdot x, v\cdot x)$; relevant ones their four
    frame coordinates. What is orthogonal to those is Gaussian given the weights, with the 2 x 2 covariance
    $\Sigma = \sum s^2(a, c)(a, c)^\top$ in every coordinate: inside the frame it is drawn, outside its Gram matrix is
    Wishart with d - 4 degrees (Bartlett).
    """
    # notation: arrays are (coordinate, batch, token, run); A_x, C_x sums of a x and c x
    scale, m, gamma = c["scale"], jnp.sqrt(c["task.snr"]), c["task.relevant_std"]
    zero = jnp.zeros_like(state.kappa)
    k = jnp.stack([state.kappa, state.eta, state.k3, zero])
    v = jnp.stack([state.theta, state.nu, state.v3, state.v4])
    rho = jnp.sum(k * v, axis=0)
    v_rest = v - rho * k
    v_rest_norm = jnp.sqrt(jnp.sum(v_rest**2, axis=0))
    unit_rest = v_rest / jnp.maximum(v_rest_norm, ACCURACY.tiny)

    def weight(score: Array) -> tuple[Array, Array]:
        inside = scale * score + c["shift"]
        return c["offset"] + erf(inside), scale * (2 / np.sqrt(np.pi)) * jnp.exp(-inside * inside)

    x_relevant = (gamma * relevant).at[0].add(m)
    key_relevant, value_relevant = _dot(k, x_relevant), _dot(v, x_relevant)
    w_relevant, dw_relevant = weight(key_relevant)
    key_other = others[0]
    value_other = rho * others[0] + v_rest_norm * others[1]
    w_other, dw_other = weight(key_other)

    output = w_relevant * value_relevant + jnp.sum(w_other * value_other, axis=1)
    r = (2 / batch) * (output - x_relevant[1] - c["task.noise"] * label)
    a_relevant, c_relevant = r * dw_relevant * value_relevant, r * w_relevant
    a_other, c_other = r[:, None] * dw_other * value_other, r[:, None] * w_other

    # the part of the other tokens outside span(k, v), inside the frame
    of_others = _covariance(a_other, c_other)
    l11, l21, l22 = _cholesky(*of_others)
    first, second = (_without(p, k, unit_rest) for p in (frame[0:4], frame[4:8]))
    along_k, along_rest = others
    grad_k = (
        jnp.sum(a_relevant * x_relevant, axis=1)
        + jnp.sum(a_other * along_k, axis=(0, 1)) * k
        + jnp.sum(a_other * along_rest, axis=(0, 1)) * unit_rest
        + l11 * first
    )
    grad_v = (
        jnp.sum(c_relevant * x_relevant, axis=1)
        + jnp.sum(c_other * along_k, axis=(0, 1)) * k
        + jnp.sum(c_other * along_rest, axis=(0, 1)) * unit_rest
        + l21 * first
        + l22 * second
    )
    # the part of all tokens outside the frame: it adds two directions
    of_relevant = _covariance(a_relevant, c_relevant)
    l11, l21, l22 = _cholesky(*(o + gamma**2 * r for o, r in zip(of_others, of_relevant, strict=True)))
    outside_k = l11 * chi[0]
    outside_v = (l21 * chi[0] + l22 * frame[8], l22 * chi[1])

    k_new = k - lr * (grad_k - jnp.sum(grad_k * k, axis=0) * k)
    v_new = v - lr * (grad_v - jnp.sum(grad_v * v, axis=0) * v)
    k_new = _normalise(jnp.concatenate([k_new, jnp.stack([-lr * outside_k, zero])]))
    v_new = _normalise(jnp.concatenate([v_new, jnp.stack([-lr * outside_v[0], -lr * outside_v[1]])]))
    return _rotate(k_new, v_new)


def _dot(vector: Array, x: Array) -> Array:
    return jnp.sum(vector[:, None] * x, axis=0)


def _without(p: Any, *directions: Any) -> Any:
    for unit in directions:
        p = p - jnp.sum(p * unit, axis=0) * unit
    return p


def _covariance(a: Any, c: Any) -> tuple[Any, Any, Any]:
    """Return the sums of a a, a c and c c over all axes but the runs."""
    axes = tuple(range(a.ndim - 1))
    return jnp.sum(a * a, axis=axes), jnp.sum(a * c, axis=axes), jnp.sum(c * c, axis=axes)


def _cholesky(aa: Any, ac: Any, cc: Any) -> tuple[Any, Any, Any]:
    """Return the lower Cholesky factor of [[aa, ac], [ac, cc]]; the 0/0 at aa = 0 is 0."""
    l11 = jnp.sqrt(aa)
    l21 = ac / jnp.maximum(l11, ACCURACY.tiny)
    return l11, l21, jnp.sqrt(jnp.maximum(cc - l21**2, 0.0))


def _normalise(x: Array) -> Array:
    return x / jnp.sqrt(jnp.sum(x * x, axis=0))


def _rotate(k: Array, v: Array) -> Frame:
    """Return the frame coordinates of new vectors: the residual of k is the third direction, that of v the fourth."""
    k_rest, v_rest = k[2:], v[2:]
    k3 = jnp.sqrt(jnp.sum(k_rest**2, axis=0))
    unit = k_rest / jnp.maximum(k3, ACCURACY.tiny)
    v3 = jnp.sum(unit * v_rest, axis=0)
    v4 = jnp.sqrt(jnp.sum((v_rest - v3 * unit) ** 2, axis=0))
    return Frame(k[0], k[1], k3, v[0], v[1], v3, v4)
