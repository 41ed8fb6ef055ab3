"""Specs from text and files: read as in Python, never evaluated, always refused with a sentence."""

import contextlib
import json
import math

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from needlepoint.core.errors import InvalidParameter, UnknownName
from needlepoint.core.overlaps import Overlaps
from needlepoint.core.text.parsing import combine, parse_spec, parse_value, read_spec_file
from needlepoint.learners import BayesOptimal, OnlineSGD, Population, ProjectedDescent
from needlepoint.models.activations import Erf, Linear, Softmax
from needlepoint.models.attention import KeyValueAttention, LinearRegression
from needlepoint.tasks.single_location import SpikedSLR

quick = settings(max_examples=60, deadline=None, derandomize=True, database=None)

# --- values ------------------------------------------------------------------------------------


@pytest.mark.exact
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        (" -2.5 ", -2.5),
        ("+4", 4),
        ("400/2", 200.0),
        ("1 + 2*3 - 4", 3),
        ("2**0.5", math.sqrt(2)),
        ("2**10", 1024),
        ("-2**2", -4),
        ("sqrt(2)", math.sqrt(2)),
        ("1/sqrt(4)", 0.5),
        ("sqrt(2000000)", math.sqrt(2e6)),
        ("sqrt(1e12)", 1e6),
        ("pi/2", math.pi / 2),
        ("inf", math.inf),
        ("-inf", -math.inf),
        ("1e-3", 0.001),
        ("True", True),
        ("None", None),
        ("'sphere'", "sphere"),
        ("(1, 2)", (1, 2)),
        ("[1, [2, 3]]", (1, (2, 3))),
        ("{2: 0.5, 3: 1/2}", {2: 0.5, 3: 0.5}),
    ],
)
def test_values(text, value):
    parsed = parse_value(text)
    assert parsed == pytest.approx(value, rel=1e-15) if isinstance(value, float) else parsed == value
    assert type(parsed) is type(value)


@pytest.mark.exact
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("SpikedSLR(tokens=2, snr=400/2)", SpikedSLR(2, 200)),
        ("SpikedSLR(10, 2, noise=sqrt(0.25))", SpikedSLR(10, 2, noise=0.5)),
        ("SpikedSLR({2: 0.5, 3: 0.5}, 1)", SpikedSLR({3: 0.5, 2: 0.5}, 1)),
        ("KeyValueAttention(Erf(scale=None), unit_norm=True)", KeyValueAttention(Erf(None), unit_norm=True)),
        (
            "ProjectedDescent(0.1, 5, (Overlaps(0.5, 0.1), Overlaps(0, -1/3)))",
            ProjectedDescent(0.1, 5, (Overlaps(0.5, 0.1), Overlaps(0, -1 / 3))),
        ),
        ("OnlineSGD(1e-3, 10, 5, 'sphere', d=100, runs=4)", OnlineSGD(1e-3, 10, 5, "sphere", d=100, runs=4)),
    ],
)
def test_specs_as_in_python(text, value):
    assert parse_value(text) == value


FINITE = st.floats(1e-6, 1e9)
WRITTEN = st.one_of(
    st.builds(SpikedSLR, st.integers(1, 50), FINITE, FINITE, FINITE),
    st.builds(SpikedSLR, st.sampled_from([{2: 0.5, 7: 0.5}, {1: 0.25, 3: 0.75}]), FINITE),
    st.builds(
        KeyValueAttention,
        st.one_of(st.builds(Erf, st.none() | FINITE, st.none() | st.floats(-9, 9)), st.just(Linear())),
        st.booleans(),
    ),
    st.builds(Overlaps, st.floats(-0.7, 0.7), st.floats(-0.7, 0.7), st.floats(-0.1, 0.1), key_sq=st.floats(1, 9)),
    st.builds(BayesOptimal, st.none() | FINITE, st.none() | st.integers(2, 99)),
    st.just(LinearRegression()),
    st.just(Population("all")),
    st.builds(ProjectedDescent, FINITE, st.integers(1, 99), st.just((Overlaps(-0.5, 0.1), Overlaps(0, 1)))),
)


@quick
@given(WRITTEN)
def test_the_repr_of_a_spec_reads_back(value):
    assert parse_value(repr(value)) == value


# --- nothing is evaluated ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "__import__('os')",
        "().__class__",
        "Erf().scale",
        "Erf.weights",
        "Erf().weights(1, {})",
        "(lambda: 1)()",
        "lambda: 1",
        "[x for x in (1, 2)]",
        "{x: 1 for x in (1, 2)}",
        "(x for x in (1, 2))",
        "{1, 2}",
        "f'{1}'",
        "1 if True else 2",
        "1 < 2",
        "True and 1",
        "not 1",
        "~1",
        "7 // 2",
        "7 % 2",
        "1 << 40",
        "1 @ 2",
        "'a' * 3",
        "'a' + 'b'",
        "(1,) * 3",
        "True + 1",
        "-None",
        "(y := 3)",
        "(1, 2)[0]",
        "{**{2: 1.0}}",
        "SpikedSLR(*(2, 1))",
        "SpikedSLR(**{'tokens': 2, 'snr': 1})",
        "Erf()()",
        "eval('1')",
        "exec('1')",
        "open('/etc/passwd')",
        "print(1)",
        "b'bytes'",
        "1j",
        "...",
        "await x",
        "yield",
        "import os",
        "x = 1",
        "1; 2",
        "SpikedSLR(2, snr=",
        "",
        "   ",
        "\x00",
        "sqrt()",
        "sqrt(1, 2)",
        "sqrt(x=1)",
        "sqrt('4')",
        "Erf",
    ],
)
def test_everything_else_is_refused(text):
    with pytest.raises(InvalidParameter):
        parse_value(text)


def test_refused_code_has_not_run(tmp_path):
    mark = tmp_path / "ran"
    for text in (
        f"__import__('pathlib').Path({str(mark)!r}).touch()",
        f"Erf(scale=open({str(mark)!r}, 'w').write('x'))",
        f"[open({str(mark)!r}, 'w') for _ in (1,)]",
        f"Erf(**{{'scale': open({str(mark)!r}, 'w')}})",
    ):
        with pytest.raises(InvalidParameter):
            parse_value(text)
    assert not mark.exists()


@pytest.mark.parametrize(
    "text",
    [
        "9**9**9",
        "2**1000",
        "10**-100",
        "(10**7)**2",
        "1000000**64",
        "SpikedSLR(2, 1000000**64)",
        "10**64 * 10**64 * 10**64 * 10**64 * 10**64",
        "SpikedSLR(2, " + "9" * 400 + ")",
        "SpikedSLR(" + "9" * 400 + ", 1)",
        "9" * 5000,
    ],
    ids=lambda text: text[:24],
)
def test_huge_numbers_are_refused_at_once(text):
    with pytest.raises(InvalidParameter):
        parse_value(text)


@pytest.mark.parametrize("text", ["1/0", "0**-1", "inf - inf", "0*inf", "(-1)**0.5", "sqrt(-1)", "0/0", "inf/inf"])
def test_arithmetic_without_a_real_value_is_refused(text):
    with pytest.raises(InvalidParameter, match="has no real value"):
        parse_value(text)


@pytest.mark.parametrize(
    "text",
    [
        "+".join(["1"] * 3000),
        "-" * 3000 + "1",
        "(" * 5000 + ")" * 5000,
        "x" + ".a" * 2000,
        "[" * 150 + "]" * 150 + ".x",
        "1" + "+1" * 900,
        "1" * 100_001,
    ],
    ids=["sum", "signs", "parentheses", "attributes", "lists", "shorter sum", "long"],
)
def test_depth_and_length_are_bounded(text):
    try:
        value = parse_value(text)
    except InvalidParameter:
        return
    assert value == 901  # the shorter sum may be read; nothing here may be another error


def test_unhashable_keys_are_refused():
    for text in ("{{}: 1}", "{(1, {}): 1}", "SpikedSLR({{2: 1}: 1.0}, 1)"):
        with pytest.raises(InvalidParameter):
            parse_value(text)


def test_a_field_given_twice_is_refused_as_in_python():
    for text in ("SpikedSLR(2, snr=1, snr=3)", "SpikedSLR(2, 1, tokens=3)"):
        with pytest.raises(InvalidParameter):
            parse_value(text)


TOKENS = st.sampled_from(
    [
        *"()[]{},:=+-*/.@~% \\\né",
        *("**", "1", "2.5", "1e9", "0", "inf", "pi", "sqrt", "None", "True", "'a'", "lambda", "for", "in", "if"),
        *("else", "x", "__import__", "SpikedSLR", "Erf", "Overlaps", "scale", "snr"),
    ]
)


@settings(quick, max_examples=300)
@given(st.lists(TOKENS, max_size=12).map("".join))
@example("SpikedSLR(2,1)")
def test_any_text_is_a_value_or_an_invalid_parameter(text):
    with contextlib.suppress(InvalidParameter):
        parse_value(text)


def test_names_are_answered_with_the_nearest():
    with pytest.raises(UnknownName, match=r"^unknown name 'SpikdSLR': did you mean 'SpikedSLR'\?$"):
        parse_value("SpikdSLR(2, 1)")
    with pytest.raises(UnknownName, match=r"^unknown name 'sqr': did you mean 'sqrt'\?$"):
        parse_value("2*sqr")
    with pytest.raises(UnknownName, match=r"^unknown field of Erf 'scal': did you mean 'scale'\?$"):
        parse_value("KeyValueAttention(Erf(scal=1))")
    with pytest.raises(InvalidParameter, match=r"^Softmax needs parentheses: Softmax\(\.\.\.\)\.$"):
        parse_value("KeyValueAttention(Softmax)")


def test_out_of_range_values_keep_their_own_sentence():
    with pytest.raises(InvalidParameter, match=r"^SpikedSLR\(snr=-1\.0\): snr must be >= 0"):
        parse_value("SpikedSLR(tokens=2, snr=-1)")


def test_parse_spec_wants_its_family():
    assert parse_spec("SpikedSLR(2, 1)", "task") == SpikedSLR(2, 1)
    assert parse_spec("None", "model") is None
    for text, family in (("Erf()", "model"), ("None", "task"), ("3", "learner"), ("SpikedSLR(2, 1)", "model")):
        with pytest.raises(InvalidParameter, match=f"is not a {family}; one of "):
            parse_spec(text, family)


# --- files -------------------------------------------------------------------------------------

TOML = """
task = "SpikedSLR(tokens=2, snr=400/2)"
learner = "Population()"
[model]
type = "KeyValueAttention"
unit_norm = true
activation = {type = "Erf", scale = 0.5}
"""
WANTED = {
    "task": SpikedSLR(2, 200),
    "model": KeyValueAttention(Erf(0.5), unit_norm=True),
    "learner": Population(),
}


def test_toml_and_json_files_say_the_same(tmp_path):
    toml, js = tmp_path / "a.toml", tmp_path / "a.json"
    toml.write_text(TOML)
    js.write_text(json.dumps({name: part.to_json() for name, part in WANTED.items()}))
    assert combine(read_spec_file(toml), {}, []) == WANTED
    assert combine(read_spec_file(js), {}, []) == WANTED


def test_infinity_and_lengths_in_files(tmp_path):
    toml = tmp_path / "a.toml"
    toml.write_text('[task]\ntype = "SpikedSLR"\ntokens = [[3, 0.5], [2, 0.5]]\nsnr = 1\n')
    assert combine(read_spec_file(toml), {}, [])["task"] == SpikedSLR({2: 0.5, 3: 0.5}, 1)
    toml.write_text('[task]\ntype = "SpikedSLR"\ntokens = 2\nsnr = inf\n')
    with pytest.raises(InvalidParameter, match=r"^SpikedSLR\(snr=inf\)"):
        combine(read_spec_file(toml), {}, [])


def test_unreadable_files(tmp_path):
    with pytest.raises(InvalidParameter, match=r"cannot read the spec .*none\.toml: No such file or directory\.$"):
        read_spec_file(tmp_path / "none.toml")
    with pytest.raises(InvalidParameter, match=r"cannot read the spec .*: Is a directory"):
        read_spec_file(tmp_path)
    with pytest.raises(InvalidParameter, match=r"cannot read the spec .*: File name too long"):
        read_spec_file(tmp_path / ("x" * 5000))


@pytest.mark.parametrize(
    ("name", "raw", "sentence"),
    [
        ("a.toml", b"task = ", "is not valid TOML"),
        ("a.toml", b"[task]\nsnr = 1\nsnr = 2\n", "is not valid TOML"),
        ("a.toml", b"\xff\xfe", "is not valid TOML"),
        ("a.toml", b'{"task": 1}', "is not valid TOML"),
        ("a.json", b"{", "is not valid JSON"),
        ("a.json", b"\xff\xfe", "is not valid JSON"),
        ("a.json", b"", "is not valid JSON"),
        ("a.json", b"[" * 100_000, "is not valid JSON"),
        ("a.json", b"[1]", "must be a table with task, model and learner"),
        ("a.json", b"3", "must be a table with task, model and learner"),
    ],
)
def test_malformed_files(tmp_path, name, raw, sentence):
    path = tmp_path / name
    path.write_bytes(raw)
    with pytest.raises(InvalidParameter, match=sentence) as refused:
        read_spec_file(path)
    assert str(path) in str(refused.value)


@pytest.mark.parametrize(
    "document",
    [
        {"task": 3},
        {"task": []},
        {"task": {}},
        {"task": {"tokens": 2, "snr": 1}},
        {"task": {"type": 3}},
        {"task": {"type": ["SpikedSLR"]}},
        {"task": {"type": "SpikedSLR", "tokens": 2, "snr": math.nan}},
        {"task": "3"},
        {"task": False},
    ],
)
def test_malformed_parts(document):
    with pytest.raises(InvalidParameter):
        combine(document, {}, [])


def test_a_table_of_another_family_is_refused_like_an_expression():
    for stored in ("Erf()", {"type": "Erf"}):
        with pytest.raises(InvalidParameter, match="is not a task"):
            combine({"task": stored}, {}, [])


def test_unknown_parts_are_answered_with_the_nearest():
    with pytest.raises(UnknownName, match=r"^unknown part of a spec 'modle': did you mean 'model'\?$"):
        combine({"modle": "Softmax()"}, {}, [])


# --- combining ---------------------------------------------------------------------------------


def test_options_override_the_file_and_changes_override_both():
    document = {"task": "SpikedSLR(2, 1)", "learner": "Population()"}
    parts = combine(
        document,
        {"task": "SpikedSLR(3, 4)", "model": "KeyValueAttention(Erf())", "learner": None},
        ["task.snr=400/2", "model.activation.scale = sqrt(4)", "task.tokens={2: 0.5, 3: 0.5}"],
    )
    assert parts == {
        "task": SpikedSLR({2: 0.5, 3: 0.5}, 200),
        "model": KeyValueAttention(Erf(2.0)),
        "learner": Population(),
    }


def test_changes_apply_in_order_and_may_hold_an_equals_sign():
    given_parts = {"model": "KeyValueAttention(Softmax())"}
    changes = ["model.activation=Erf(scale=0.1)", "model.activation.shift=None", "model.activation.scale=0.2"]
    assert combine({}, given_parts, changes)["model"] == KeyValueAttention(Erf(0.2, None))
    learner = {"learner": "Population()"}
    assert combine({}, learner, ["learner.within='all'"])["learner"] == Population("all")


def test_missing_parts_are_none_and_a_model_may_be_none():
    assert combine({}, {}, []) == {"task": None, "model": None, "learner": None}
    assert combine({"model": "KeyValueAttention(Softmax())"}, {"model": "None"}, [])["model"] is None


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("task.snr", r"^--set 'task\.snr': write it as part\.field=value"),
        ("snr=3", r"^--set 'snr=3': write it as part\.field=value"),
        ("task.=3", r"^--set 'task\.=3': write it as part\.field=value"),
        ("=3", "write it as part.field=value"),
        ("tsk.snr=3", r"^unknown part of a spec 'tsk': did you mean 'task'\?$"),
        ("task.snrr=3", r"^unknown field of SpikedSLR 'snrr': did you mean 'snr'\?$"),
        ("task.snr=-3", r"^SpikedSLR\(snr=-3\.0\): snr must be >= 0"),
        ("task.snr=", r"^cannot read ''"),
        ("task.snr.x=1", r"^SpikedSLR\.snr has no fields; cannot set 'snr\.x'\.$"),
        ("learner.lr=1", r"^--set 'learner\.lr=1': there is no learner to change\.$"),
    ],
)
def test_changes_that_cannot_be_made(change, sentence):
    with pytest.raises(InvalidParameter, match=sentence):
        combine({"task": "SpikedSLR(2, 1)"}, {}, [change])


def test_a_change_is_refused_before_it_touches_the_others():
    document = {"task": "SpikedSLR(2, 1)", "model": KeyValueAttention(Softmax()).to_json()}
    with pytest.raises(InvalidParameter):
        combine(document, {}, ["task.snr=2", "task.snr=-1"])
    assert document["task"] == "SpikedSLR(2, 1)"
