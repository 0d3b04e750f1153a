"""The guards of the protocol, each of which exploration must miss when it is gone."""

from __future__ import annotations

from tests.exploration.mutants import effects, families, owning, turning, waiting
from tests.exploration.mutants.model import Mutant

SUBJECTS: dict[str, tuple[Mutant, ...]] = {
    "Owning an execution, and its chain": owning.MUTANTS,
    "Effects": effects.MUTANTS,
    "Turning back": turning.MUTANTS,
    "Children": families.MUTANTS,
    "Waits, limits and messages": waiting.MUTANTS,
}

MUTANTS = tuple(mutant for mutants in SUBJECTS.values() for mutant in mutants)
REDUNDANT = owning.REDUNDANT
