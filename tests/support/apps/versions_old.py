"""What the workers knew before the deploy."""

from __future__ import annotations

from tests.support.apps.versions import OLD

ALL = [saga for family in OLD.values() for saga in family.all]
