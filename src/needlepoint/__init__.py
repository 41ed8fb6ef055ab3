"""needlepoint: what attention layers learn when dimension and data are large.

A task, a model and a learner; `predict` answers in the limit, `simulate` by training at finite size,
`compare` puts them side by side. Names are loaded on first use, so importing the package is cheap and
changes no setting of JAX.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import needlepoint.core.process.forks as _forks  # from the beginning, so that no fork goes unnoticed
from needlepoint.core.text.drawing import draw_with as _draw_with

if TYPE_CHECKING:
    __version__: str
    from needlepoint.checkpoints.cutting.truncation import truncation as truncation
    from needlepoint.checkpoints.heads.report import heads as heads
    from needlepoint.checkpoints.probing.probe import probe as probe
    from needlepoint.checkpoints.reading.checkpoint import read_checkpoint as read_checkpoint
    from needlepoint.core.answers.comparison import Comparison as Comparison
    from needlepoint.core.answers.spectra import Spectrum as Spectrum
    from needlepoint.core.answers.spectra import TrainedSpectrum as TrainedSpectrum
    from needlepoint.core.answers.states import States as States
    from needlepoint.core.errors import InvalidParameter as InvalidParameter
    from needlepoint.core.errors import NeedlepointError as NeedlepointError
    from needlepoint.core.errors import NotConverged as NotConverged
    from needlepoint.core.errors import NoTheory as NoTheory
    from needlepoint.core.errors import UnknownName as UnknownName
    from needlepoint.core.estimates import Estimate as Estimate
    from needlepoint.core.overlaps import FieldOverlaps as FieldOverlaps
    from needlepoint.core.overlaps import IndexedOverlaps as IndexedOverlaps
    from needlepoint.core.overlaps import Overlaps as Overlaps
    from needlepoint.core.process.caching import use_cache as use_cache
    from needlepoint.core.results import Measurement as Measurement
    from needlepoint.core.results import Prediction as Prediction
    from needlepoint.core.results import Trajectory as Trajectory
    from needlepoint.core.specs import count as count
    from needlepoint.core.specs import nested as nested
    from needlepoint.core.specs import real as real
    from needlepoint.core.specs import spec as spec
    from needlepoint.core.status import Status as Status
    from needlepoint.explorer.opening import explore as explore
    from needlepoint.learners import BayesOptimal as BayesOptimal
    from needlepoint.learners import GradientFlow as GradientFlow
    from needlepoint.learners import OnlineSGD as OnlineSGD
    from needlepoint.learners import Population as Population
    from needlepoint.learners import ProjectedDescent as ProjectedDescent
    from needlepoint.learners import Ridge as Ridge
    from needlepoint.losses import Logistic as Logistic
    from needlepoint.losses import Square as Square
    from needlepoint.models.activations import Erf as Erf
    from needlepoint.models.activations import Linear as Linear
    from needlepoint.models.activations import Softmax as Softmax
    from needlepoint.models.activations import SoftmaxOne as SoftmaxOne
    from needlepoint.models.activations import Softplus as Softplus
    from needlepoint.models.attention import DirectAttention as DirectAttention
    from needlepoint.models.attention import KeyValueAttention as KeyValueAttention
    from needlepoint.models.attention import LinearRegression as LinearRegression
    from needlepoint.models.attention import TiedAttention as TiedAttention
    from needlepoint.models.fields import FieldModel as FieldModel
    from needlepoint.models.heads import MultiHead as MultiHead
    from needlepoint.models.tied_columns import LowRankTied as LowRankTied
    from needlepoint.models.user_activations import activation as activation
    from needlepoint.papers.citations import cite as cite
    from needlepoint.plotting.results import plot as plot
    from needlepoint.simulation.simulating import simulate as simulate
    from needlepoint.studies.contest import contest as contest
    from needlepoint.studies.crossing import Crossing as Crossing
    from needlepoint.studies.crossing import risk_crossing as risk_crossing
    from needlepoint.studies.execution.executors import Processes as Processes
    from needlepoint.studies.execution.executors import Serial as Serial
    from needlepoint.studies.execution.on_dask import Dask as Dask
    from needlepoint.studies.refining import Refine as Refine
    from needlepoint.studies.study import Study as Study
    from needlepoint.studies.study import open_study as open_study
    from needlepoint.studies.study import sweep as sweep
    from needlepoint.studies.sweeps import Simulation as Simulation
    from needlepoint.studies.verdicts import Contest as Contest
    from needlepoint.tasks.attention_indexed import AttentionIndexed as AttentionIndexed
    from needlepoint.tasks.needles import Needles as Needles
    from needlepoint.tasks.positional_semantic import PositionalSemantic as PositionalSemantic
    from needlepoint.tasks.sequence import SequenceTask as SequenceTask
    from needlepoint.tasks.several_relevant import SeveralSLR as SeveralSLR
    from needlepoint.tasks.sign_labels import SignSLR as SignSLR
    from needlepoint.tasks.single_location import MaxSLR as MaxSLR
    from needlepoint.tasks.single_location import SpikedSLR as SpikedSLR
    from needlepoint.tasks.targets import Eigenvalues as Eigenvalues
    from needlepoint.tasks.targets import PowerLaw as PowerLaw
    from needlepoint.tasks.targets import Wishart as Wishart
    from needlepoint.theory.comparing import compare as compare
    from needlepoint.theory.fields.ridge.branches import energy_crossing as energy_crossing
    from needlepoint.theory.fields.ridge.branches import field_branches as field_branches
    from needlepoint.theory.fields.ridge.spinodals import Ending as Ending
    from needlepoint.theory.fields.ridge.spinodals import Spinodals as Spinodals
    from needlepoint.theory.fields.ridge.spinodals import field_spinodals as field_spinodals
    from needlepoint.theory.indexed.power_laws import Directions as Directions
    from needlepoint.theory.indexed.power_laws import Exponents as Exponents
    from needlepoint.theory.indexed.power_laws import learning_exponents as learning_exponents
    from needlepoint.theory.indexed.power_laws import recovered_directions as recovered_directions
    from needlepoint.theory.indexed.thresholds import Thresholds as Thresholds
    from needlepoint.theory.indexed.thresholds import thresholds as thresholds
    from needlepoint.theory.location.bayes.samples import Branch as Branch
    from needlepoint.theory.location.bayes.samples import bayes_branches as bayes_branches
    from needlepoint.theory.location.bayes.transition import BayesPoint as BayesPoint
    from needlepoint.theory.location.bayes.transition import BayesTransition as BayesTransition
    from needlepoint.theory.location.bayes.transition import bayes_scan as bayes_scan
    from needlepoint.theory.location.bayes.transition import bayes_transition as bayes_transition
    from needlepoint.theory.location.erf.landscape import FixedPoint as FixedPoint
    from needlepoint.theory.location.erf.landscape import fixed_points as fixed_points
    from needlepoint.theory.location.erf.landscape import nullcline as nullcline
    from needlepoint.theory.location.erf.landscape import oracle_instability as oracle_instability
    from needlepoint.theory.location.erf.landscape import oracle_point as oracle_point
    from needlepoint.theory.location.erf.landscape import swapped_crossing as swapped_crossing
    from needlepoint.theory.location.erf.landscape import swapped_minimum as swapped_minimum
    from needlepoint.theory.location.erf.landscape import vector_field as vector_field
    from needlepoint.theory.location.population.optimum import key_landscape as key_landscape
    from needlepoint.theory.location.population.risk import excess_risk as excess_risk
    from needlepoint.theory.location.population.risk import population_risk as population_risk
    from needlepoint.theory.location.population.statements import LengthCost as LengthCost
    from needlepoint.theory.location.population.statements import bayes_asymptote as bayes_asymptote
    from needlepoint.theory.location.population.statements import elementwise_bound as elementwise_bound
    from needlepoint.theory.location.population.statements import length_cost as length_cost
    from needlepoint.theory.location.population.statements import linear_asymptote as linear_asymptote
    from needlepoint.theory.location.population.statements import linear_optimum as linear_optimum
    from needlepoint.theory.location.population.statements import softmax_key as softmax_key
    from needlepoint.theory.predicting import predict as predict

_HOMES = {
    "checkpoints.cutting.truncation": ("truncation",),
    "checkpoints.heads.report": ("heads",),
    "checkpoints.probing.probe": ("probe",),
    "checkpoints.reading.checkpoint": ("read_checkpoint",),
    "core.answers.comparison": ("Comparison",),
    "core.answers.spectra": ("Spectrum", "TrainedSpectrum"),
    "core.answers.states": ("States",),
    "core.process.caching": ("use_cache",),
    "core.errors": ("InvalidParameter", "NeedlepointError", "NoTheory", "NotConverged", "UnknownName"),
    "core.estimates": ("Estimate",),
    "core.overlaps": ("FieldOverlaps", "IndexedOverlaps", "Overlaps"),
    "core.results": ("Measurement", "Prediction", "Trajectory"),
    "core.specs": ("count", "nested", "real", "spec"),
    "core.status": ("Status",),
    "explorer.opening": ("explore",),
    "learners": ("BayesOptimal", "GradientFlow", "OnlineSGD", "Population", "ProjectedDescent", "Ridge"),
    "losses": ("Logistic", "Square"),
    "models.activations": ("Erf", "Linear", "Softmax", "SoftmaxOne", "Softplus"),
    "models.attention": ("DirectAttention", "KeyValueAttention", "LinearRegression", "TiedAttention"),
    "models.fields": ("FieldModel",),
    "models.heads": ("MultiHead",),
    "models.tied_columns": ("LowRankTied",),
    "models.user_activations": ("activation",),
    "papers.citations": ("cite",),
    "plotting.results": ("plot",),
    "simulation.simulating": ("simulate",),
    "studies.contest": ("contest",),
    "studies.crossing": ("Crossing", "risk_crossing"),
    "studies.execution.executors": ("Processes", "Serial"),
    "studies.execution.on_dask": ("Dask",),
    "studies.refining": ("Refine",),
    "studies.study": ("Study", "open_study", "sweep"),
    "studies.sweeps": ("Simulation",),
    "studies.verdicts": ("Contest",),
    "tasks.attention_indexed": ("AttentionIndexed",),
    "tasks.needles": ("Needles",),
    "tasks.positional_semantic": ("PositionalSemantic",),
    "tasks.sequence": ("SequenceTask",),
    "tasks.several_relevant": ("SeveralSLR",),
    "tasks.sign_labels": ("SignSLR",),
    "tasks.single_location": ("MaxSLR", "SpikedSLR"),
    "tasks.targets": ("Eigenvalues", "PowerLaw", "Wishart"),
    "theory.comparing": ("compare",),
    "theory.fields.ridge.branches": ("energy_crossing", "field_branches"),
    "theory.fields.ridge.spinodals": ("Ending", "Spinodals", "field_spinodals"),
    "theory.indexed.power_laws": ("Directions", "Exponents", "learning_exponents", "recovered_directions"),
    "theory.indexed.thresholds": ("Thresholds", "thresholds"),
    "theory.location.bayes.samples": ("Branch", "bayes_branches"),
    "theory.location.bayes.transition": ("BayesPoint", "BayesTransition", "bayes_scan", "bayes_transition"),
    "theory.location.erf.landscape": (
        "FixedPoint",
        "fixed_points",
        "nullcline",
        "oracle_instability",
        "oracle_point",
        "swapped_crossing",
        "swapped_minimum",
        "vector_field",
    ),
    "theory.location.population.optimum": ("key_landscape",),
    "theory.location.population.risk": ("excess_risk", "population_risk"),
    "theory.location.population.statements": (
        "LengthCost",
        "bayes_asymptote",
        "elementwise_bound",
        "length_cost",
        "linear_asymptote",
        "linear_optimum",
        "softmax_key",
    ),
    "theory.predicting": ("predict",),
}
_HOME = {name: module for module, members in _HOMES.items() for name in members}

__all__ = sorted(_HOME)  # pyright: ignore[reportUnsupportedDunderAll]  # one table of names is enough


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("needlepoint")
    if name not in _HOME:
        raise AttributeError(f"module 'needlepoint' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"needlepoint.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOME])


def _plot(*args: Any, **options: Any) -> Any:
    """Draw an answer; plotting is imported when the first one is drawn."""
    return __getattr__("plot")(*args, **options)


_draw_with(_plot)
