"""What MkDocs does not do for this repository.

The pages are read in the repository too, so they link to files that are not part of the site: the
design, the examples, the source. On the site such a link goes to the file's page in the repository.
A link to a file that does not exist ends the build, and so does a page that loads something from
another host.
"""

import posixpath
import re
from pathlib import Path

from mkdocs.exceptions import PluginError

ROOT = Path(__file__).resolve().parent.parent.parent
LINK = re.compile(r"(?<=\]\()(\.\./[^)#\s]*)(#[^)\s]*)?(?=\))|(?<=^\[)(\.\./[^)#\s]*)")
FENCE = re.compile(r"^\s*(```|~~~)")
LOADED = re.compile(r"""(?:\bsrc=|<link[^>]*rel="?stylesheet"?[^>]*href=)["']?((?:https?:)?//[^"'\s>]*)""")


def on_page_markdown(markdown, page, config, files):
    """Replaces each link that leaves the directory of the documentation."""
    inside = Path(config.docs_dir).name
    lines, fenced = [], False
    for line in markdown.split("\n"):
        if FENCE.match(line):
            fenced = not fenced
        if not fenced:
            line = LINK.sub(lambda m: replaced(m, page, inside, config.extra["repository"]), line)
        lines.append(line)
    return "\n".join(lines)


def replaced(match, page, inside, repository):
    target = match[1] or match[3]
    path = posixpath.normpath(posixpath.join(inside, posixpath.dirname(page.file.src_uri), target))
    if path.startswith(inside + "/"):
        return match[0]
    if not (ROOT / path).exists():
        raise PluginError(f"{page.file.src_uri} links to {target}, which does not exist")
    kind = "tree" if (ROOT / path).is_dir() else "blob"
    return f"{repository.rstrip('/')}/{kind}/main/{path}{match[2] or ''}"


def on_post_page(output, page, config):
    """Refuses a page that makes the browser ask another host."""
    if found := LOADED.search(output):
        raise PluginError(f"{page.file.src_uri} loads {found[1]}")
    return output
