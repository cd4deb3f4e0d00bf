"""What is printed, held against its schema."""

from __future__ import annotations

from typing import Any

from jsonschema import Draft202012Validator

from stayfinite.schemas import schema


def strict(name: str) -> Draft202012Validator:
    """The schema, with no key allowed that it does not name: a schema that forgets one is found out."""

    def closed(part: Any) -> Any:
        if isinstance(part, dict):
            found = {key: closed(each) for key, each in part.items()}
            return found | {"additionalProperties": False} if "properties" in part else found
        return [closed(each) for each in part] if isinstance(part, list) else part

    return Draft202012Validator(closed(schema(name)))
