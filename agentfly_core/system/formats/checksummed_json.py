"""JSON files with a schema number and a checksum. The checksum is the digest of all other fields.

{"checksum": "9f2c...e1", "digest": "77b0...3a", "schema": 1, "uri": "runs/demo/..."}
"""

import json
from collections.abc import Mapping

from agentfly_core.system.formats import file_shapes, strict_json
from agentfly_core.system.formats.hashing import digest
from agentfly_core.system.formats.json_value import JSON

SCHEMA = 1
SEAL = ("checksum", "schema")


class Damaged(ValueError):
    """A file was changed or damaged after it was written. The message names the file."""


def sealed(value: Mapping[str, JSON]) -> dict[str, JSON]:
    """Return the content of a checksummed file: `value` with a schema number and a checksum."""
    fields = {**value, "schema": SCHEMA}
    return {**fields, "checksum": digest(fields)}


def value_of(content: bytes, where: str) -> dict[str, JSON]:
    """Check the content of a checksummed file, and return it without schema number and checksum.

    `where` is the path of the file. Raises Damaged if the content is invalid or was changed.
    """
    fields = json_of(content, where)
    unsealed = {key: value for key, value in fields.items() if key != "checksum"}
    try:
        if fields.get("checksum") != digest(unsealed):
            raise ValueError("checksum mismatch")
        if (schema := fields.get("schema")) != SCHEMA:
            raise ValueError(
                f"the schema is {schema!r:.40}, expected {SCHEMA}; read the file with the version "
                "of AgentFly that wrote it"
            )
        file_shapes.check(where, unsealed)
    except (ValueError, RecursionError) as error:
        raise Damaged(f"{where} is damaged: {error}.") from None
    return {key: value for key, value in fields.items() if key not in SEAL}


def json_of(content: bytes, where: str) -> dict[str, JSON]:
    """Return the JSON object in the content of a file. The schema and the checksum are not checked.

    `where` is the path of the file. Raises Damaged if the content is not a JSON object.
    """
    try:
        value = json.loads(
            content.decode(),
            object_pairs_hook=strict_json.without_repetition,
            parse_constant=strict_json.refuse_constant,
        )
    except (ValueError, RecursionError) as error:
        raise Damaged(f"{where} is damaged, because it is not valid JSON: {error}.") from None
    if not isinstance(value, dict):
        raise Damaged(f"{where} is damaged: it contains {value!r:.40}, expected an object.")
    return value
