"""What every database can store, and what is refused before it gets there."""

from __future__ import annotations

import pytest

from fencepost import serde
from fencepost.errors import PayloadError


@pytest.mark.parametrize("text", ["a\x00b", "\\\x00", "\\\\\x00", "\ud800"])
@pytest.mark.parametrize("place", [lambda t: t, lambda t: {"k": [t]}, lambda t: {t: 1}])
def test_what_postgresql_cant_store_is_refused(text, place):
    with pytest.raises(PayloadError) as caught:
        serde.dump(place(text), object, what="result of step 'x'")
    assert caught.value.code == "payload.invalid"
    assert "result of step 'x'" in str(caught.value)


@pytest.mark.parametrize("text", ["\\u0000", "\\\\u0000", "\x01", "🦀", "größe", "\\"])
def test_what_only_looks_like_it_is_kept(text):
    assert serde.dump({"k": text}, dict[str, str], what="x") == {"k": text}
