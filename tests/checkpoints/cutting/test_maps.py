"""Maps of lower rank, their prediction, the rotary metric and the allotment, each by a second route."""

import itertools

import numpy as np
import pytest

import needlepoint as ndl
from needlepoint.checkpoints.cutting.allotment import greedy, least_ranks, lower_hull, same_rank
from needlepoint.checkpoints.cutting.calibration import HeadLoss, offered_ranks, spread_out
from needlepoint.checkpoints.cutting.losses import responses
from needlepoint.checkpoints.cutting.rotary_metric import averaged, distance_shares
from needlepoint.checkpoints.cutting.texts import held_apart, sentences
from needlepoint.checkpoints.cutting.whitening import best_maps, score_losses
from needlepoint.checkpoints.forward.layers import softmax
from needlepoint.checkpoints.forward.states import Turning
from needlepoint.checkpoints.heads.rotary import rotation


def moments(rng, p, n=40):
    x = rng.standard_normal((n, p)) @ rng.standard_normal((p, p))
    return x.T @ x / n


@pytest.mark.exact
def test_the_map_is_that_of_the_whitened_dense_matrix(rng):
    """P from p x p moments against C^-1/2 [C^1/2 M C^1/2]_r C^-1/2 in the space of tokens."""
    p, d, rank = 3, 7, 2
    q, k = rng.standard_normal((2, p, d))
    c = moments(rng, d)
    found = best_maps(q @ c @ q.T, k @ c @ k.T)
    values, vectors = np.linalg.eigh(c)
    root = vectors * np.sqrt(values) @ vectors.T
    u, s, vt = np.linalg.svd(root @ q.T @ k @ root)
    np.testing.assert_allclose(found.values, s[:p], rtol=1e-10)
    inverse = np.linalg.inv(root)
    want = inverse @ (u[:, :rank] * s[:rank]) @ vt[:rank] @ inverse
    np.testing.assert_allclose(q.T @ found.at(rank) @ k, want, atol=1e-10)
    np.testing.assert_allclose(found.at(p), np.eye(p), atol=1e-10)
    assert np.all(found.at(0) == 0)
    assert np.linalg.matrix_rank(found.at(rank)) == rank


@pytest.mark.exact
def test_the_loss_of_scores_is_the_tail_and_no_map_does_better(rng):
    p, rank = 4, 2
    gq, gk = moments(rng, p), moments(rng, p)
    found = best_maps(gq, gk)

    def loss(m):
        return np.trace((np.eye(p) - m).T @ gq @ (np.eye(p) - m) @ gk) / p

    for r in range(p + 1):
        assert loss(found.at(r)) == pytest.approx(score_losses(found.values, p**-0.5)[r], abs=1e-9)
    best = loss(found.at(rank))
    for _ in range(50):
        near = found.left[:, :rank] + 0.05 * rng.standard_normal((p, rank))
        assert loss(near @ np.diag(found.values[:rank]) @ found.right[:rank]) >= best - 1e-12


def test_singular_moments_are_taken(rng):
    few = rng.standard_normal((2, 5))
    found = best_maps(few.T @ few, few.T @ few)
    assert np.isfinite(found.at(2)).all()
    assert np.all(best_maps(np.zeros((3, 3)), np.eye(3)).values < 1e-100)


@pytest.mark.exact
def test_the_response_is_the_derivative_of_softmax(rng):
    scores = rng.standard_normal((3, 6)) * 2
    a = softmax(scores)
    change = 1e-4
    for row, weights in zip(scores, a, strict=True):
        jacobian = np.array([(softmax(row + change * e) - softmax(row - change * e)) / (2 * change) for e in np.eye(6)])
        assert responses(weights[None])[0] == pytest.approx(np.sum(jacobian**2), rel=1e-6)


@pytest.mark.exact
@pytest.mark.parametrize("pairs", ["half", "adjacent"])
@pytest.mark.parametrize("width", [8, 4])
def test_the_rotary_metric_is_the_sum_over_distances(pairs, width, rng):
    g, shares = moments(rng, 8), rng.random(6)
    want = np.zeros((8, 8))
    for t, w in enumerate(shares):
        r = rotation(8, -t, width, 50.0, pairs)
        want += w * r @ g @ r.T
    np.testing.assert_allclose(averaged(g, shares, Turning(width, 50.0, pairs)), want, atol=1e-12)


@pytest.mark.exact
def test_shares_of_distances(rng):
    weights = np.tril(rng.random((4, 4)))
    want = [np.trace(weights, -t) for t in range(4)]
    np.testing.assert_allclose(distance_shares(weights), want)


def head(number, ranks, losses):
    ranks, losses = np.array(ranks), np.array(losses, float)
    return HeadLoss(0, number, np.ones(ranks[-1]), 1.0, np.zeros(ranks[-1] + 1), ranks, losses, losses, None)


@pytest.mark.exact
def test_greedy_ranks_are_the_best_of_all_on_convex_curves(rng):
    """Three heads of width 4 with convex curves: every allotment with the same total is tried."""
    heads = []
    for i in range(3):
        falls = np.sort(rng.random(4))[::-1] * 10.0 ** rng.integers(-2, 2)
        heads.append(head(i, range(5), np.concatenate([[falls.sum()], falls.sum() - np.cumsum(falls)])))
    for mean in (0, 1, 5 / 3, 2, 3, 4):
        got = greedy(heads, mean)
        total = sum(got.values())
        assert total == round(3 * mean)
        mine = sum(h.output[got[0, h.head]] for h in heads)
        best = min(
            sum(h.output[r] for h, r in zip(heads, ranks, strict=True))
            for ranks in itertools.product(range(5), repeat=3)
            if sum(ranks) == total
        )
        assert mine == pytest.approx(best, abs=1e-12)


def test_the_hull_passes_over_bumps():
    assert lower_hull(np.arange(5), np.array([4.0, 3.9, 1.0, 2.0, 0.0])) == [0, 2, 4]
    assert lower_hull(np.arange(3), np.array([2.0, 1.0, 0.0])) == [0, 2]


def test_ranks_by_loss_stay_below_it():
    heads = [head(0, (0, 1, 2, 4), (0.5, 0.005, 0.02, 0.0)), head(1, (0, 1, 2, 4), (0.001, 0.0, 0.0, 0.0))]
    assert least_ranks(heads, 0.01) == {(0, 0): 4, (0, 1): 0}  # the bump at 2 counts
    assert same_rank(heads, 3) == {(0, 0): 3, (0, 1): 3}
    for call in (lambda: same_rank(heads, 5), lambda: greedy(heads, 5), lambda: least_ranks(heads, 0.0)):
        with pytest.raises(ndl.InvalidParameter, match="is expected"):
            call()


def test_ranks_and_sequences_that_are_measured():
    assert offered_ranks(32).tolist() == [0, 1, 2, 3, 4, 6, 8, 12, 16, 20, 24, 28, 32]
    assert offered_ranks(8)[-1] == 8
    assert spread_out(np.arange(0, 101, 10), 1000) == list(range(10))
    assert spread_out(np.arange(0, 101, 10), 30) == [0, 4, 9]


def test_texts_are_split():
    assert sentences("One  two. Three?\n\nfour\nfive! Six") == ["One two.", "Three?", "four five!", "Six"]
    kept, held = held_apart([[i, i] for i in range(9)])
    assert [s[0] for s in held] == [3, 7]
    assert len(kept) == 7
    with pytest.raises(ndl.InvalidParameter, match="too few to hold some out"):
        held_apart([[1, 2]])
