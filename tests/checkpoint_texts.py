"""Two kinds of English text that every installation has: Python's language reference, and licences of packages."""

import importlib.metadata
import random
import re
from pydoc_data import topics

from needlepoint.checkpoints.cutting.texts import sentences


def _plain(sentence):
    if not sentence.isascii() or "@" in sentence or "://" in sentence:  # other languages, lists of names, addresses
        return False
    words = sentence.split()
    letters = sum(c.isalpha() or c == " " for c in sentence)
    capitals = sum(c.isupper() for c in sentence)
    return 6 <= len(words) <= 40 and letters > 0.85 * len(sentence) and capitals < 0.15 * len(sentence)


def manual():
    """Sentences of the reference that `help()` shows, in its order."""
    return list(dict.fromkeys(s for text in topics.topics.values() for s in sentences(text) if _plain(s)))


def licences():
    """Sentences of the licences of all installed packages, each once; names of fonts are left out."""
    found = {}
    for package in sorted(importlib.metadata.distributions(), key=lambda d: str(d.metadata["Name"])):
        for file in package.files or []:
            if ".dist-info" in str(file) and re.search("licen[cs]e|copying|notice", str(file).lower()):
                try:
                    text = file.locate().read_text(errors="ignore")
                except OSError:
                    continue
                found.update({s: None for s in sentences(text) if _plain(s) and "Font" not in s})
    return list(found)


def split(kind, seed, calibration=300, test=100):
    """Sentences of a kind, shuffled: some for calibration, others for testing."""
    found = {"manual": manual, "licences": licences}[kind]()
    random.Random(seed).shuffle(found)
    return found[:calibration], found[calibration : calibration + test]
