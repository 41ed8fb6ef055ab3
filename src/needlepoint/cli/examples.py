"""Examples that stand below the help of each command; the suite runs every one of them.

Files that they name are as in docs/quickstart.md: `run.toml` has a question, `study.toml` a study, and `mine.py` an
activation called `mine`; `my-model` is the folder of a checkpoint, `words.txt` and `other.txt` are texts, and
`labels.csv` has labelled sentences.
"""

from __future__ import annotations

EXAMPLES: dict[str, tuple[str, ...]] = {
    "predict": (
        'needlepoint predict --task "SpikedSLR(tokens=3, snr=2)" --model "KeyValueAttention(Linear())" \\\n'
        '    --learner "Ridge(alpha=5, lam=0.1)" --plot curve.png',
        'needlepoint predict --task "MaxSLR(tokens=2, snr=2)" --learner "BayesOptimal()" --tol 1e-6 --seed 1',
        'needlepoint predict --task "SpikedSLR(tokens=2, snr=2)" --model "KeyValueAttention(Softmax())" \\\n'
        '    --learner "Ridge(alpha=5, lam=0.5)" --ansatz 1rsb',
        "needlepoint predict --spec run.toml --set task.snr=4 --json",
        'needlepoint predict --theory mine.py --task "SpikedSLR(tokens=2, snr=2)" \\\n'
        '    --model "KeyValueAttention(mine())" --learner "Population()"',
    ),
    "simulate": (
        'needlepoint simulate --task "SpikedSLR(tokens=3, snr=2)" --model "KeyValueAttention(Softmax())" \\\n'
        '    --learner "Ridge(alpha=5, lam=0.1)" --d 20 --repeats 4 --samples 1000 --plot numbers.png',
        'needlepoint simulate --task "SpikedSLR(tokens=2, snr=2)" --model "KeyValueAttention(Softmax())" \\\n'
        '    --learner "Ridge(alpha=2, lam=0.1)" --d 20 --repeats 2 --samples 1000 --starts 4',
        'needlepoint simulate --spec run.toml --overlaps "Overlaps(key=1, value=1)" --d 20 --seed 1 --json',
        'needlepoint simulate --theory mine.py --spec run.toml --set "model.activation=mine()" \\\n'
        '    --overlaps "Overlaps(key=1, value=1)" --d 20',
    ),
    "compare": (
        'needlepoint compare --task "SpikedSLR(tokens=2, snr=2)" --learner "BayesOptimal()" --d 20 --d 40 \\\n'
        "    --repeats 8 --samples 1000 --plot scores.png",
        'needlepoint compare --task "SpikedSLR(tokens=2, snr=2)" --model "KeyValueAttention(Linear())" \\\n'
        '    --learner "Ridge(alpha=5, lam=0.1)" --d 40 --repeats 4',
        'needlepoint compare --task "SpikedSLR(tokens=2, snr=2)" --model "KeyValueAttention(Softmax())" \\\n'
        '    --learner "Ridge(alpha=5, lam=0.5)" --ansatz 1rsb --d 20 --repeats 2 --starts 4',
        'needlepoint compare --theory mine.py --spec run.toml --set "model.activation=mine()" --d 20 \\\n'
        "    --seed 1 --tol 1e-4 --json",
    ),
    "sweep": (
        "needlepoint sweep study.toml --plot snr.png",
        "needlepoint sweep study.toml --store other.sqlite --set task.tokens=3 --retry --yes --json",
        'needlepoint sweep study.toml --theory mine.py --set "model.activation=mine()"',
        'needlepoint sweep study.toml --executor processes --workers 2 --memory "2 GB"',
        "needlepoint sweep study.toml --executor dask --address tcp://scheduler:8786",
    ),
    "contest": (
        'needlepoint contest --task "SpikedSLR(tokens=2, snr=2)" --models "KeyValueAttention(Softmax())" \\\n'
        '    --models "KeyValueAttention(Linear())" --models None --learner "Population()" --plot contest.png',
        'needlepoint contest --task "SpikedSLR(tokens=2, snr=2, noise=0.1)" --models "KeyValueAttention(Linear())" \\\n'
        '    --models "KeyValueAttention(Softmax())" --learner "Ridge(alpha=6, lam=\'optimal\')" --alpha 4 \\\n'
        "    --alpha 6 --common --d 20 --repeats 4 --samples 1000",
        "needlepoint contest --theory mine.py --spec run.toml --set task.snr=4 --seed 1 --tol 1e-3 --json \\\n"
        '    --models "KeyValueAttention(mine())" --models "KeyValueAttention(Softmax())"',
    ),
    "figures": ("needlepoint figures", "needlepoint figures --json"),
    "reproduce": (
        "needlepoint reproduce erf-flow softmax-landscape --quick --out out --json",
        "needlepoint reproduce --full --out full",
        'needlepoint reproduce --executor processes --workers 2 --memory "2 GB"',
        "needlepoint reproduce --executor dask --address tcp://scheduler:8786",
    ),
    "thresholds": (
        'needlepoint thresholds --task "AttentionIndexed(2, Wishart(0.5))" --model "DirectAttention()"',
        "needlepoint thresholds --spec indexed.toml --set task.noise_var=0.1 --json",
    ),
    "spectrum": (
        'needlepoint spectrum --task "AttentionIndexed(1, Wishart(0.5), noise_var=0.5)" --model "TiedAttention()" \\\n'
        '    --learner "Ridge(alpha=0.5, lam=0.05)" --d 8 --plot spectrum.png --csv density.csv',
        "needlepoint spectrum --spec indexed.toml --set task.noise_var=0.1 --seed 1 --json",
    ),
    "heads": (
        "needlepoint heads my-model --layer 0 --head 1 --plot heads.png --out heads.csv",
        "needlepoint heads my-model --law tied --level 0.999 --follow-links --json",
        "needlepoint heads my-model/model.safetensors --heads 4 --key-heads 4 \\\n"
        "    --name query=encoder.layer.{layer}.attention.self.query \\\n"
        "    --name key=encoder.layer.{layer}.attention.self.key",
    ),
    "truncate": (
        "needlepoint truncate my-model --text words.txt --budget 4 --write cut.safetensors --plot losses.png",
        "needlepoint truncate my-model --text words.txt --test other.txt --loss 0.01 --follow-links --json",
        "needlepoint truncate my-model --text words.txt --rank 4 --write small.safetensors --factors \\\n"
        "    --heads 4 --key-heads 4",
    ),
    "probe": (
        "needlepoint probe my-model --sentences 40 --seed 1 --plot bars.png",
        "needlepoint probe my-model --data labels.csv --heads 4 --follow-links --json",
    ),
    "explore": (
        "needlepoint explore study.sqlite --export page.html",
        "needlepoint explore . my-model --theory mine.py --port 8765 --allow-host atlas --no-browser",
    ),
    "tasks": ("needlepoint tasks", "needlepoint tasks --json"),
    "models": ("needlepoint models", "needlepoint models --json"),
    "learners": ("needlepoint learners", "needlepoint learners --json"),
    "cite": ("needlepoint cite 2410.01537", "needlepoint cite --json"),
    "study ls": ("needlepoint study ls", "needlepoint study ls . --json"),
    "study show": (
        "needlepoint study show study.sqlite",
        "needlepoint study show study.sqlite --theory mine.py --json",
    ),
    "study export": (
        "needlepoint study export study.sqlite table.csv",
        "needlepoint study export study.sqlite picture.png --theory mine.py",
    ),
    "study prune": ("needlepoint study prune study.sqlite --json",),
    "study retry": (
        "needlepoint study retry study.sqlite --theory mine.py --json",
        'needlepoint study retry study.sqlite --executor processes --workers 2 --memory "2 GB"',
        "needlepoint study retry study.sqlite --executor dask --address tcp://scheduler:8786",
    ),
}
"""Command -> what can be typed; a line that ends with a backslash goes on in the next."""


def below(command: str) -> str | None:
    """Return the examples of a command for the end of its help, each line kept as it is; None if there are none."""
    examples = EXAMPLES.get(command)
    if examples is None:
        return None
    lines = [f"  {line}" for example in examples for line in example.splitlines()]
    return "\n".join(["\b", "Examples:" if len(examples) > 1 else "Example:", *lines])
