"""Results as documents with arrays beside them: what comes back is what went in, bit for bit, and nothing is run."""

import dataclasses
import datetime
import enum
import io
import json
import math
import pickle
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import needlepoint as ndl
from needlepoint.studies.execution.jobs import Job, Unit
from needlepoint.studies.execution.work import Outcome
from needlepoint.studies.storage.codec import decode, encode
from needlepoint.studies.storage.seals import hashes, seal_of
from needlepoint.studies.storage.store import Store, _bytes

TASK = ndl.SpikedSLR({2: 0.25, 5: 0.75}, 1.5, noise=0.3)
MODEL = ndl.KeyValueAttention(ndl.Erf(scale=None, shift=0.1), unit_norm=True)
RESOLVED = (TASK, ndl.KeyValueAttention(ndl.Erf(0.4, 0.1), unit_norm=True), ndl.Population())
LINEAR = (ndl.SpikedSLR(2, 1.0), ndl.LinearRegression(), ndl.Population())
quick = settings(max_examples=60, deadline=None, derandomize=True, database=None)


def trip(value):
    """Through JSON text and the bytes of arrays, as a store has them."""
    arrays = {}
    text = json.dumps(encode(value, arrays), allow_nan=False)
    blobs = {name: _bytes(array) for name, array in arrays.items()}
    return decode(json.loads(text), {name: np.load(io.BytesIO(b), allow_pickle=False) for name, b in blobs.items()})


def same(a, b):
    """Equal types and bits, inside containers and results too; one NaN is as good as another."""
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, float):
        return (math.isnan(a) and math.isnan(b)) or struct.pack("d", a) == struct.pack("d", b)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return same(list(a), list(b)) and same(list(a.values()), list(b.values()))
    if dataclasses.is_dataclass(a):
        return all(same(getattr(a, f.name), getattr(b, f.name)) for f in dataclasses.fields(a))
    return a == b


def trajectory(rng):
    paths = {name: rng.standard_normal((3, 4)) for name in ("key", "value", "value_on_key")}
    paths["key"][1, 2:] = np.nan
    return ndl.Trajectory(
        np.array([0, 1, 2, 5]), np.full(4, 0.4), paths, rng.standard_normal((3, 4)) ** 2, ("oracle", "other", "swapped")
    )


def results():
    rng = np.random.default_rng(0)
    finite, odd = ndl.Estimate(0.1 + 0.2, 1e-17), ndl.Estimate(math.nan, math.inf, "stderr")
    overlaps = ndl.Overlaps(0.3, math.pi / 4, key_dot_value=-0.1)
    prediction = ndl.Prediction(
        *(TASK, MODEL, ndl.Population()),
        {"risk": finite, "excess_risk": odd},
        status=ndl.Status.NOISE_LIMITED,
        overlaps=overlaps,
        overlaps_error={"key": 1e-9, "value": math.inf},
        trajectory=trajectory(rng),
        branch="oracle",
        notes=("first", "second: é\n"),
        seed=2**62 + 1,
        resolved=RESOLVED,
        exact=True,
        stable=False,
        replicon=-0.0,
        residual=math.nan,
    )
    measurement = ndl.Measurement(*RESOLVED, {"risk": odd}, trajectory=trajectory(rng), d=7, repeats=3)
    return {
        "prediction": prediction,
        "bare prediction": ndl.Prediction(TASK, None, ndl.BayesOptimal(), {}),
        "measurement": measurement,
        "estimate": finite,
        "estimate, infinite": ndl.Estimate(-math.inf, math.inf),
        "estimate, nan": odd,
        "length cost": ndl.LengthCost(finite, ndl.Estimate(5e-324, 0.0)),
        "fixed points": (
            ndl.FixedPoint(overlaps, "saddle", 0.25, (-1.5, 1e-300)),
            ndl.FixedPoint(ndl.Overlaps(0, 0), "maximum", math.inf, ()),
        ),
        "trajectory": trajectory(rng),
        "overlaps": overlaps,
    }


@pytest.mark.exact
@pytest.mark.parametrize("name", results())
def test_every_public_result_comes_back_bit_for_bit(name):
    value = results()[name]
    assert same(trip(value), value)


@pytest.mark.exact
def test_what_the_verbs_return_comes_back_bit_for_bit():
    prediction = ndl.predict(*LINEAR)
    measurement = ndl.simulate(*LINEAR, d=5, repeats=2, samples=50, seed=3)
    erf = (ndl.SpikedSLR(2, 1.0), ndl.KeyValueAttention(ndl.Erf(0.5), unit_norm=True))
    for value in (
        prediction,
        measurement,
        ndl.fixed_points(*erf),
        ndl.vector_field(*erf, np.linspace(-0.9, 0.9, 5), np.zeros(5)),
        ndl.length_cost(TASK, ndl.KeyValueAttention(ndl.Softmax())),
        ndl.linear_optimum(LINEAR[0]),
        ndl.predict(*erf, ndl.ProjectedDescent(0.01, 4, "sphere", d=8, runs=3)),
    ):
        again = trip(value)
        assert same(again, value)
        if hasattr(value, "to_json"):
            assert again.to_json() == value.to_json()


@pytest.mark.negative
def test_the_comparison_sees_one_bit():
    value = results()["prediction"]
    moved = value.trajectory.excess_risk.copy()
    moved[0, 0] = np.nextafter(moved[0, 0], 1)
    assert not same(value, dataclasses.replace(value, replicon=0.0))
    assert not same(value, dataclasses.replace(value, trajectory=dataclasses.replace(value.trajectory, steps=moved)))
    assert not same(np.zeros(3), np.zeros(3, dtype=np.float32))
    assert not same((1, 2), [1, 2])
    assert not same(1, 1.0)
    assert not same(True, 1)


@pytest.mark.parametrize(
    "array",
    [
        np.array([0.1, -0.0, np.nan, np.inf, 5e-324]),
        np.arange(6).reshape(2, 3),
        np.array([True, False]),
        np.array([0.1], dtype=np.float32),
        np.array([1 + 2j]),
        np.array("word"),
        np.array(2.5),
        np.zeros((0, 3)),
        np.linspace(0, 1, 12).reshape(3, 4)[:, ::2],
    ],
    ids=["odd floats", "ints", "flags", "float32", "complex", "words", "scalar", "empty", "strided"],
)
def test_arrays_keep_dtype_shape_and_bits(array):
    assert same(trip(array), np.ascontiguousarray(array).reshape(array.shape))
    assert same(trip({"a": (array, [array])})["a"][1][0], np.ascontiguousarray(array).reshape(array.shape))


@pytest.mark.parametrize("status", ndl.Status)
def test_statuses_are_statuses(status):
    assert trip(status) is status
    assert trip({status: [status]}) == {status: [status]}


SPECS = [
    TASK,
    MODEL,
    ndl.MaxSLR(3, math.inf),
    ndl.KeyValueAttention(ndl.Softplus()),
    ndl.LinearRegression(),
    ndl.BayesOptimal(d=20),
    ndl.Population("all"),
    ndl.ProjectedDescent(0.01, 5, (ndl.Overlaps(0.1, 0.2), ndl.Overlaps(0.3, 0.1))),
    ndl.OnlineSGD(0.01, 5, 2, "sphere", d=8, runs=3),
    ndl.Erf(0.1 + 0.2, offset=None),
]


@pytest.mark.parametrize("spec", SPECS, ids=lambda s: type(s).__name__)
def test_specs_are_the_same_specs(spec):
    again = trip(spec)
    assert again == spec
    assert again.id == spec.id


def test_a_named_activation_is_stored_by_its_name():
    import jax.numpy as jnp

    @ndl.activation("codec_tanh")
    def codec_tanh(scores):
        return jnp.tanh(scores)

    model = ndl.KeyValueAttention(codec_tanh)
    assert trip(model) == model
    with pytest.raises(ndl.InvalidParameter, match=r"a bare function cannot be stored .* @ndl\.activation"):
        encode(ndl.KeyValueAttention(jnp.sin), {})


scalars = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.sampled_from(ndl.Status))
keys = st.one_of(st.text(), st.integers(2, 99), st.tuples(st.integers(), st.text()), st.none())
nested = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(keys, inner, max_size=4),
    ),
    max_leaves=12,
)


@pytest.mark.exact
@quick
@given(nested)
def test_nested_containers_come_back(value):
    assert same(trip(value), value)


@quick
@given(st.dictionaries(st.sampled_from(["$array", "$map", "$type", "$tuple", "$status", "fields"]), st.text()))
def test_a_users_keys_are_not_taken_for_the_codecs(value):
    assert same(trip(value), value)
    assert same(trip([value, (value,)]), [value, (value,)])


def test_numpy_numbers_become_python_numbers_of_the_same_value():
    assert same(trip((np.float64(0.1), np.int32(7), np.float32(0.1))), (0.1, 7, float(np.float32(0.1))))


def test_arrays_of_one_result_have_their_own_names():
    value = {"a": [np.zeros(1), {"b": np.ones(2)}], "c": (np.full(3, 2.0),)}
    arrays = {}
    encode(value, arrays)
    assert len(arrays) == 3
    assert same(trip(value), value)


@pytest.mark.parametrize(
    "value",
    [{"a": {"b": np.zeros(1)}, "a.b": np.ones(2)}, {1: np.zeros(1), "1": np.ones(2)}],
    ids=["dots", "number and word"],
)
def test_places_that_are_spelled_alike_are_kept_apart(value):
    assert same(trip(value), value)


# --- refusals ----------------------------------------------------------------------------------


@dataclasses.dataclass
class Private:
    x: float = 1.0


class Colour(enum.Enum):
    RED = 1


UNKNOWN = {
    "object": object(),
    "function": len,
    "set": {1, 2},
    "bytes": b"abc",
    "complex": 1j,
    "date": datetime.date(2024, 1, 1),
    "private dataclass": Private(),
    "enum": Colour.RED,
    "class": Private,
    "exception": ValueError("x"),
    "inside": {"a": [1, (object(),)]},
    "inside a result": ndl.Prediction(*LINEAR, {"risk": Private()}),  # pyright: ignore[reportArgumentType]
}


@pytest.mark.parametrize("case", UNKNOWN)
def test_other_types_are_refused(case):
    with pytest.raises(ndl.InvalidParameter, match=r"^\w+: a result of this type cannot be stored"):
        encode(UNKNOWN[case], {})


def test_a_type_of_another_version_is_one_sentence():
    with pytest.raises(ndl.InvalidParameter, match="the store has a Nonsense, which this version does not know"):
        decode({"$type": "Nonsense", "fields": {}}, {})


@pytest.mark.parametrize("name", ["cite", "Serial", "open_study"])
def test_a_document_calls_no_function(name):
    fields = {"path": "nothing.sqlite"} if name == "open_study" else {}
    with pytest.raises(ndl.InvalidParameter, match=f"the store has a {name}, which this version does not know"):
        decode({"$type": name, "fields": fields}, {})


# --- no pickles --------------------------------------------------------------------------------


class Trap:
    """Unpickling this is noticed."""

    sprung = False

    def __reduce__(self):
        return setattr, (Trap, "sprung", True)


def blob(store):
    return store._db.execute("SELECT data FROM blobs").fetchone()[0]


def stored(array):
    job = Job("predict", LINEAR)
    store, arrays = Store(), {}
    document = json.dumps(encode((array,), arrays))
    store.put(Unit([job]), [Outcome(job.id, "done", "CONVERGED", document=document, arrays=arrays)])
    return store, job


def test_blobs_are_plain_arrays():
    array = np.array([1.0, np.nan])
    store, job = stored(array)
    with store:
        assert blob(store).startswith(b"\x93NUMPY")
        with pytest.raises(pickle.UnpicklingError):
            pickle.loads(blob(store))
        assert same(store.get(job.id).result, (array,))


def test_a_pickle_in_the_place_of_a_blob_is_not_loaded():
    store, job = stored(np.zeros(1))
    trap = io.BytesIO()
    np.save(trap, np.array([Trap()], dtype=object), allow_pickle=True)
    with store:
        store._db.execute("UPDATE blobs SET data = ?", (trap.getvalue(),))
        assert store.get(job.id).message.startswith("what is stored of this point is damaged; ")
        # somebody who wants it read would also forge the seal
        arrays = hashes(store._blobs(job.id))
        seal = seal_of(store.row(job.id), [], arrays)
        store._db.execute("UPDATE seals SET arrays = ?, seal = ?", (arrays, seal))
        assert "allow_pickle=False" in store.get(job.id).message
        assert store.get(job.id).state == "damaged"
        assert store.missing(Unit([job]), retry=True)
    assert not Trap.sprung
    trap.seek(0)
    np.load(trap, allow_pickle=True)
    assert Trap.sprung  # the trap does work


def test_an_array_of_objects_is_refused_with_a_sentence():
    with pytest.raises(ndl.InvalidParameter, match="cannot be stored"):
        encode(np.array([Private()], dtype=object), {})
