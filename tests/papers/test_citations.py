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
