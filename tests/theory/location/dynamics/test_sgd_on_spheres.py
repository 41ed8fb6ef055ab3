"""SGD in law against SGD with real vectors, by z-scores with power."""

import functools

import jax
import numpy as np
import pytest

import needlepoint as ndl

NAMES = ("key", "value", "value_on_key", "key_on_value", "key_dot_value")
START = ndl.Overlaps(0.4, 0.5, 0.2, -0.1, 0.3)


def erf(scale, **more):
    return ndl.KeyValueAttention(ndl.Erf(scale, **more), unit_norm=True)


def moments(trajectory, record):
    """Mean, mean square, mean cube and pair products of the overlaps at a record, with standard errors."""
    five = np.stack([trajectory.overlaps[n][:, record] for n in NAMES])
    rows = [*five, *five**2, *five**3, *[five[i] * five[j] for i in range(5) for j in range(i)]]
    rows = np.array(rows)
    return rows.mean(axis=1), rows.std(axis=1, ddof=1) / np.sqrt(rows.shape[1])


def z_scores(theory, vectors, record):
    a, a_se = moments(theory.trajectory, record)
    b, b_se = moments(vectors.trajectory, record)
    return (a - b) / np.hypot(a_se, b_se), np.hypot(a_se, b_se)


RUNS = 12_000
TASK = ndl.SpikedSLR(3, snr=3, relevant_std=0.8, noise=0.3)
"""With six dimensions, batches of two and this many runs: one compilation for most tests of this file."""


@functools.cache
def vectors_after(task, model, learner, seed=2):
    """SGD with real vectors at the learner's own d, once for all that is compared with it."""
    return ndl.simulate(task, model, learner, d=learner.d, repeats=learner.runs, seed=seed)


CASES = [
    # steps, d, tokens, batch, lr, activation scale: small d, where the Wishart law is furthest from its mean
    ((20,), 6, 3, 2, 0.02, 0.8),
    pytest.param((1, 20), 6, 3, 2, 0.02, 0.8, marks=pytest.mark.slow),
    pytest.param((1, 20), 6, 3, 1, 0.02, 0.8, marks=pytest.mark.slow),
    pytest.param((1, 20), 12, 4, 3, 0.02, 0.8, marks=pytest.mark.slow),
    pytest.param((1, 20), 30, 2, 2, 0.01, 0.4, marks=pytest.mark.slow),
    pytest.param((1, 20), 9, 1, 2, 0.02, 0.6, marks=pytest.mark.slow),
]


@pytest.mark.training
@pytest.mark.parametrize(("after", "d", "tokens", "batch", "lr", "scale"), CASES)
def test_law_of_a_few_steps(after, d, tokens, batch, lr, scale):
    """25 moments after 1 and 20 steps. Each z is standard normal: beyond 4.5 in 3 of 10,000 such sets."""
    task = ndl.SpikedSLR(tokens, snr=d / 2, relevant_std=0.8, noise=0.3)
    for steps in after:
        learner = ndl.OnlineSGD(lr, steps, batch, START, record_every=steps, d=d, runs=RUNS)
        theory = ndl.predict(task, erf(scale), learner, seed=1)
        z, error = z_scores(theory, vectors_after(task, erf(scale), learner), -1)
        assert np.abs(z).max() < 4.5, (steps, z)
        assert error[:5].max() < 0.01  # of overlaps of order one


@pytest.mark.negative
@pytest.mark.parametrize("twin", ["d", "noise", "batch"])
def test_a_wrong_constant_is_seen(twin):
    learner = ndl.OnlineSGD(0.02, 20, 2, START, record_every=20, d=6, runs=RUNS)
    vectors = vectors_after(TASK, erf(0.8), learner)
    if twin == "d":
        wrong = ndl.predict(TASK, erf(0.8), learner.replace(d=7), seed=1)
    elif twin == "noise":
        wrong = ndl.predict(TASK.replace(noise=0.9), erf(0.8), learner, seed=1)
    else:
        wrong = ndl.predict(TASK, erf(0.8), learner.replace(batch=3), seed=1)
    z, _ = z_scores(wrong, vectors, -1)
    assert np.abs(z).max() > 4.5


@pytest.mark.negative
@pytest.mark.parametrize("broken", [None, "no correlation", "degrees", "no spread"])
def test_a_wrong_wishart_is_seen(broken, monkeypatch):
    """One large step at d = 6, where what lies outside the frame matters most, with its law broken on purpose."""
    from needlepoint.theory.location.dynamics import sgd_on_spheres as sgd

    right = sgd._cholesky
    if broken == "no correlation":
        monkeypatch.setattr(sgd, "_cholesky", lambda aa, ac, cc: right(aa, 0 * ac, cc))
    elif broken == "no spread":
        monkeypatch.setattr(sgd, "_cholesky", lambda aa, ac, cc: (right(aa, ac, cc)[0], right(aa, ac, cc)[1], 0 * cc))
    elif broken == "degrees":
        noise = sgd._Noise.__init__
        monkeypatch.setattr(sgd._Noise, "__init__", lambda self, b, n, d, r, s: noise(self, b, n, d + 2, r, s))
    plain = sgd._advance.__wrapped__  # traced anew, with the broken part in place
    monkeypatch.setattr(sgd, "_advance", jax.jit(lambda *args: plain(*args), static_argnums=0))
    learner = ndl.OnlineSGD(0.3, 1, 2, START, d=6, runs=RUNS)
    theory = ndl.predict(TASK, erf(0.8), learner, seed=1)
    z, _ = z_scores(theory, vectors_after(TASK, erf(0.8), learner), -1)
    assert bool(np.abs(z).max() < 4.5) is (broken is None), z


@pytest.mark.exact
def test_several_starts_are_strata():
    """The spread between starts is no error of their mean."""
    task = ndl.SpikedSLR(3, snr=4.0)
    starts = (ndl.Overlaps(0.9, 0.9), ndl.Overlaps(0.0, 0.1))
    both = ndl.predict(task, erf(0.5), ndl.OnlineSGD(1e-3, 4, 2, starts, record_every=4, d=6, runs=RUNS // 2))
    spread = both.trajectory.overlaps["key"][:, -1].std() / np.sqrt(RUNS)
    assert both.overlaps_error["key"] < 0.1 * spread
    assert both.overlaps.key == pytest.approx(0.45, abs=0.01)


@pytest.mark.slow
@pytest.mark.training
def test_law_along_a_schedule_with_shift_and_offset():
    task = ndl.SpikedSLR(3, snr=5, relevant_std=0.7, noise=0.1)
    learner = ndl.OnlineSGD(0.02, 100, 2, "sphere", schedule=0.02, record_every=100, d=6, runs=RUNS)
    model = erf(1.0, shift=0.2, offset=0.3)
    theory = ndl.predict(task, model, learner, seed=1)
    vectors = vectors_after(task, model, learner)
    comparison = ndl.compare(theory, vectors)
    assert comparison.worst < 4.5
    assert vectors.risk.error < 0.01 * vectors.risk.value
    z, _ = z_scores(theory, vectors, -1)
    assert np.abs(z).max() < 4.5


@pytest.mark.exact
def test_without_noise_in_the_limit_of_many_samples_it_is_descent():
    """A batch of 4,000 sequences and small steps follow the population gradient."""
    task = ndl.SpikedSLR(3, snr=4.0, relevant_std=0.8)
    start = ndl.Overlaps(0.3, 0.4, 0.1, -0.1, 0.2)
    sgd = ndl.predict(task, erf(0.5), ndl.OnlineSGD(0.02, 50, 4000, start, record_every=50, d=20, runs=16))
    descent = ndl.predict(task, erf(0.5), ndl.ProjectedDescent(0.02, 50, start, record_every=50))
    for name in NAMES:
        spread = sgd.trajectory.overlaps[name][:, -1]
        error = spread.std(ddof=1) / 4
        # besides the noise of the mean, steps add a bias of order lr / batch
        assert abs(spread.mean() - getattr(descent.overlaps, name)) < 5 * error + 1e-4
        assert error < 2e-3


def test_degenerate_frames_stay_finite():
    """k in the plane of the teachers, v equal to k, and the oracle itself are 0/0 in the frame."""
    starts = (
        ndl.Overlaps(1.0, 1.0),
        ndl.Overlaps(0.6, 0.0, key_on_value=0.8),
        ndl.Overlaps(0.0, 0.0, key_dot_value=1.0),
        ndl.Overlaps(0.6, 0.8, value_on_key=0.6, key_on_value=0.8, key_dot_value=1.0),
    )
    for start in starts:
        learner = ndl.OnlineSGD(0.02, 1, 2, start, d=6, runs=RUNS)
        theory = ndl.predict(TASK, erf(0.5), learner, seed=3)
        assert theory.status is ndl.Status.FINISHED
        z, _ = z_scores(theory, vectors_after(TASK, erf(0.5), learner, seed=4), -1)
        assert np.nanmax(np.abs(z)) < 4.5


@pytest.mark.exact
def test_runs_do_not_depend_on_how_they_are_recorded():
    task = ndl.SpikedSLR(4, snr=5.0)
    learner = ndl.OnlineSGD(0.01, 600, 2, START, record_every=600, d=10, runs=3)
    coarse = ndl.predict(task, erf(0.5), learner).trajectory
    for every in (1, 70, 256):
        fine = ndl.predict(task, erf(0.5), learner.replace(record_every=every)).trajectory
        assert fine.steps[-1] == 600
        np.testing.assert_array_equal(fine.overlaps["key"][:, -1], coarse.overlaps["key"][:, -1])
    other = ndl.predict(task, erf(0.5), learner, seed=1).trajectory
    assert np.all(other.overlaps["key"][:, -1] != coarse.overlaps["key"][:, -1])


def test_what_sgd_needs():
    with pytest.raises(ndl.InvalidParameter, match="d must be a whole number >= 6"):
        ndl.OnlineSGD(0.01, 10, 2, START, d=5)
    with pytest.raises(ndl.InvalidParameter, match="d is needed"):
        ndl.OnlineSGD(0.01, 10, 2, START)
    learner = ndl.OnlineSGD(0.01, 10, 2, START, d=8, runs=2)
    for verb in (ndl.predict, functools.partial(ndl.simulate, d=8, repeats=2)):
        with pytest.raises(ndl.NoTheory, match="random lengths"):
            verb(ndl.SpikedSLR({1: 0.5, 2: 0.5}, 1.0), erf(0.5), learner)
    with pytest.raises(ndl.InvalidParameter, match="the two must agree"):
        ndl.simulate(ndl.SpikedSLR(2, 1.0), erf(0.5), learner, d=9, repeats=2)
    with pytest.raises(ndl.NoTheory, match="unit_norm"):
        ndl.predict(ndl.SpikedSLR(2, 1.0), ndl.KeyValueAttention(ndl.Linear(), unit_norm=True), learner)


@pytest.mark.slow
@pytest.mark.training
def test_paper_run_in_law_and_with_vectors():
    """d = 80, batch 5, scale 2 / (1 + 1e-4 t), 1,500 steps from the sphere, as far as vectors are affordable."""
    task = ndl.SpikedSLR(10, snr=40, relevant_std=0.5**0.5, noise=0.1)
    learner = ndl.OnlineSGD(1e-3, 1500, 5, "sphere", schedule=1e-4, record_every=500, d=80, runs=4000)
    theory = ndl.predict(task, erf(2.0), learner, seed=1)
    vectors = ndl.simulate(task, erf(2.0), learner, d=80, repeats=256, seed=2)
    assert ndl.compare(theory, vectors).worst < 4
    z, _ = z_scores(theory, vectors, -1)
    assert np.abs(z).max() < 4.5


@pytest.mark.slow
@pytest.mark.paper
def test_paper_sgd_ends_at_the_oracle():
    """sheet 01, section 7: 60 of 60 at the oracle, excess .1831 to .1889 against the oracle's .18207."""
    task = ndl.SpikedSLR(10, snr=40, relevant_std=0.5**0.5, noise=0.1)
    learner = ndl.OnlineSGD(1e-3, 200_000, 5, "sphere", schedule=1e-4, record_every=20_000, d=80, runs=60)
    run = ndl.predict(task, erf(2.0), learner, seed=3)
    assert run.trajectory.shares() == {"oracle": 60}
    end = run.trajectory.excess_risk[:, -1]
    assert end.min() > 0.18207
    assert end.max() < 0.195
    assert np.abs(run.trajectory.overlaps["key"][:, -1]).min() > 0.99
