"""Parses SQL with sqlfluff's grammar.

Reads {"dialect": "tsql", "statements": [...]} from standard input, and writes the error of each
statement, or an empty text, as a list in JSON.
"""

import json
import sys

from sqlfluff.core import Linter


def problem(parsed):
    """What is wrong with a statement, or an empty text."""
    if parsed.violations:
        return parsed.violations[0].desc()
    for call in parsed.tree.recursive_crawl("execute_script_statement"):
        # T-SQL runs a name that begins a batch as a procedure, as in LIMIT 1; the grammar takes it anywhere.
        if not call.segments[0].is_type("keyword"):
            return f"{call.raw}: a procedure without EXEC"
    return ""


job = json.load(sys.stdin)
linter = Linter(dialect=job["dialect"])
errors = [problem(linter.parse_string(statement)) for statement in job["statements"]]
json.dump(errors, sys.stdout)
