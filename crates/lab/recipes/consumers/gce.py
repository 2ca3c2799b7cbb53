"""Reads request bodies of Google Compute Engine with Google's own types; a field that they do not have is an error.

Reads a JSON list of [name of the type, file]; prints a JSON list with a verdict for each.
"""
import json
import sys

from google.cloud import compute_v1


def judge(message, path):
    try:
        with open(path, encoding="utf-8") as file:
            read = getattr(compute_v1, message).from_json(file.read(), ignore_unknown_fields=False)
    except Exception as error:
        return {"complaints": [f"{type(error).__name__}: {error}"], "user_data": None}
    items = read.properties.metadata.items if message == "InstanceTemplate" else []
    user_data = [item.value for item in items if item.key == "user-data"]
    return {"complaints": [], "user_data": user_data[0] if user_data else None}


def main():
    json.dump([judge(*entry) for entry in json.load(sys.stdin)], sys.stdout)


main()
