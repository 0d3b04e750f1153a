"""What the workers know after the deploy: one family's old definitions beside its new ones."""

from __future__ import annotations

from tests.support.apps.versions import BESIDE, NEW, OLD

ALL = [saga for family in (*NEW.values(), OLD[BESIDE]) for saga in family.all]
