"""The columns of a source: which there are, and that no other is built."""

from __future__ import annotations

import pytest

from raftlog.client.messages import Message
from spark_io.errors import InvalidOption
from spark_io.reading import record_batch
from spark_io.schemas import arrow_schema, schema_of


class OffsetOnly:
    """A message without anything but its offset."""

    offset = 7


# requirement: A8
def test_only_the_named_columns_are_built_in_their_order() -> None:
    schema = arrow_schema(schema_of(includes_headers=False, columns="offset"))
    message: Message = OffsetOnly()  # type: ignore[assignment]
    assert record_batch([message], schema).to_pydict() == {"offset": [7]}
    assert schema_of(includes_headers=False, columns="headers, offset").names == ["headers", "offset"]
    assert schema_of(includes_headers=True).names[-1] == "headers"
    assert "headers" not in schema_of(includes_headers=False).names


@pytest.mark.parametrize("columns", ["offset,value,nothing", "offset,offset", ""])
def test_a_wrong_column_is_refused_with_the_known_ones(columns: str) -> None:
    with pytest.raises(InvalidOption, match="name some of key, value, topic, partition, offset"):
        schema_of(includes_headers=False, columns=columns)
