"""What to cite."""

import re

import pytest

import needlepoint as ndl
from needlepoint.papers.citations import PAPERS


def entries(text):
    return re.findall(r"^@(\w+)\{([^,]+),$", text, flags=re.MULTILINE)


def balanced(text):
    return text.count("{") == text.count("}")


@pytest.mark.parametrize("arxiv", PAPERS)
def test_a_paper_comes_with_the_library(arxiv):
    text = ndl.cite(arxiv)
    assert entries(text) == [("software", "needlepoint"), ("article", PAPERS[arxiv]["key"])]
    assert f"eprint = {{{arxiv}}}" in text
    for field in ("title", "author", "year"):
        assert f"{field} = {{{PAPERS[arxiv][field]}}}" in text
        assert PAPERS[arxiv][field]
    assert balanced(text)


def test_everything_and_the_library_alone():
    assert entries(ndl.cite()) == [("software", "needlepoint"), *[("article", p["key"]) for p in PAPERS.values()]]
    assert entries(ndl.cite("needlepoint")) == [("software", "needlepoint")]
    assert f"version = {{{ndl.__version__}}}" in ndl.cite("needlepoint")
    assert len({p["key"] for p in PAPERS.values()}) == len(PAPERS)


def test_an_unknown_paper_names_the_nearest():
    with pytest.raises(ndl.UnknownName, match=r"^unknown paper '2410\.01573': did you mean '2410\.01537'\?$"):
        ndl.cite("2410.01573")


def test_a_result_cites_the_paper_of_its_model():
    task = ndl.SpikedSLR(2, 1.0)
    result = ndl.predict(task, ndl.LinearRegression(), ndl.Population())
    assert "2410.01537" in ndl.cite(result)
    erf, softmax = ndl.KeyValueAttention(ndl.Erf(), unit_norm=True), ndl.KeyValueAttention(ndl.Softmax())
    assert "2410.01537" in ndl.cite(erf)
    assert "2509.21936" not in ndl.cite(erf)
    for other in (softmax, ndl.KeyValueAttention(ndl.Erf()), ndl.MaxSLR(2, 1.0)):
        assert "2509.21936" in ndl.cite(other)


@pytest.mark.parametrize(
    ("what", "papers"),
    [
        (ndl.TiedAttention(), ["2509.24914", "2506.01582"]),
        (ndl.Wishart(0.5), ["2509.24914", "2506.01582"]),
        (ndl.AttentionIndexed(1, ndl.Wishart(0.5)), ["2509.24914", "2506.01582"]),
        ((ndl.AttentionIndexed(1, ndl.Wishart(0.5)), None, ndl.BayesOptimal(1.0)), ["2506.01582"]),
        (ndl.Softmax(), ["2509.21936"]),
        (ndl.Erf(), ["2410.01537"]),
        ([ndl.Erf(), ndl.Softmax()], ["2410.01537", "2509.21936"]),
        (ndl.Ridge(1.0, 1.0), list(PAPERS)),
    ],
    ids=repr,
)
def test_specs_cite_the_papers_of_their_family(what, papers):
    assert entries(ndl.cite(what))[1:] == [("article", PAPERS[p]["key"]) for p in PAPERS if p in papers]


@pytest.mark.parametrize("what", [3, 2410.01537, b"2410.01537", {}, (), [3], ndl.SpikedSLR, True])
def test_what_cannot_be_cited_is_one_sentence(what):
    with pytest.raises(
        ndl.InvalidParameter, match=r"^cite\(.*\): give an arXiv number such as .*, or nothing \(all\)\.$"
    ):
        ndl.cite(what)
