"""Makes the drawings of concepts.md: python3 docs/drawings/draw.py writes them beside this file.

Each is a list of shapes on a grid. A colour has a meaning, in light and in dark: blue is the log and
its events, green is done or committed, red is a failure, grey is a process.
"""

from html import escape
from pathlib import Path

STYLE = """
  .bg{fill:#f6f8fa}.box{fill:#fff;stroke:#57606a}.log{fill:#ddf4ff;stroke:#0969da}.done{fill:#1a7f37;stroke:#1a7f37}
  .ok{fill:#dafbe1;stroke:#1a7f37}.bad{fill:#ffebe9;stroke:#cf222e}.fly{fill:#fff8c5;stroke:#9a6700}.gone{fill:none;stroke:#8c959f;stroke-dasharray:4 3}
  .frame{fill:none;stroke:#1a7f37;stroke-dasharray:6 4}text{fill:#1f2328}.small{font-size:12px;fill:#57606a}.head{font-weight:600}
  .on{fill:#fff}.arrow,.line{fill:none;stroke:#57606a;stroke-width:1.6}.stop{stroke:#cf222e}.tip{fill:#57606a}.mono{font-family:ui-monospace,Menlo,Consolas,monospace;font-size:12px}
  @media (prefers-color-scheme: dark){
  .bg{fill:#1b222c}.box{fill:#222b37;stroke:#9aa4b0}.log{fill:#0d2d4d;stroke:#58a6ff}.done{fill:#2ea043;stroke:#2ea043}
  .ok{fill:#12331d;stroke:#3fb950}.bad{fill:#3f1519;stroke:#f85149}.fly{fill:#3a2d09;stroke:#d29922}.gone{stroke:#6e7681}
  .frame{stroke:#3fb950}text{fill:#e6edf3}.small{fill:#a9b4c0}.arrow,.line{stroke:#a9b4c0}.stop{stroke:#f85149}.tip{fill:#a9b4c0}}
"""


class Drawing:
    def __init__(self, name, title, width, height):
        self.name, self.title, self.size, self.shapes = name, title, (width, height), []

    def text(self, x, y, text, kind="", anchor="start"):
        self.shapes.append(f'<text x="{x}" y="{y}" class="{kind}" text-anchor="{anchor}">{escape(text)}</text>')
        return self

    def box(self, x, y, w, h, kind, *lines):
        """A box with lines of text in its middle, the first of them as a heading if there are several."""
        self.shapes.append(f'<rect x="{x}" y="{y}" width="{w}" height="{h}" rx="6" class="{kind}" stroke-width="1.3"/>')
        top = y + h / 2 - 9 * (len(lines) - 1) + 5
        for i, line in enumerate(lines):
            style = "small" if i and kind != "done" else "head" if len(lines) > 1 else ""
            if kind == "done":
                style += " on"
            self.text(x + w / 2, top + 18 * i, line, style, "middle")
        return self

    def events(self, x, y, kinds, first=0):
        """Events of a partition: d done, l in the log, b failed, f in flight, g gone."""
        names = {"d": "done", "l": "log", "b": "bad", "f": "fly", "g": "gone"}
        for i, kind in enumerate(kinds):
            self.box(x + 34 * i, y, 30, 26, names[kind], str(first + i))
        return self

    def arrow(self, x1, y1, x2, y2, kind="arrow", by=None):
        path = f"M{x1} {y1} L{x2} {y2}" if by is None else f"M{x1} {y1} Q{by[0]} {by[1]} {x2} {y2}"
        self.shapes.append(f'<path d="{path}" class="{kind}" marker-end="url(#t)"/>')
        return self

    def line(self, x1, y1, x2, y2, kind="line"):
        self.shapes.append(f'<path d="M{x1} {y1} L{x2} {y2}" class="{kind}"/>')
        return self

    def cross(self, x, y):
        return self.line(x - 7, y - 7, x + 7, y + 7, "line stop").line(x - 7, y + 7, x + 7, y - 7, "line stop")

    def write(self):
        w, h = self.size
        Path(__file__).with_name(self.name + ".svg").write_text(
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {w} {h}" role="img" font-family="system-ui,-apple-system,Segoe UI,sans-serif" font-size="14">\n'
            f"<title>{escape(self.title)}</title>\n<style>{STYLE}</style>\n"
            '<defs><marker id="t" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0 10 5 0 10z" class="tip"/></marker></defs>\n'
            f'<rect width="{w}" height="{h}" rx="10" class="bg"/>\n' + "\n".join(self.shapes) + "\n</svg>\n")


d = Drawing("partition", "Partitions, offsets and a checkpoint", 700, 210)
for p, kinds in enumerate(["dddddllll", "dddlll", "dddddddl"]):
    d.text(24, 48 + 50 * p, f"partition {p}", "head").events(120, 30 + 50 * p, kinds)
d.text(460, 48, "new events are appended here", "small").arrow(456, 43, 428, 43)
d.line(288, 22, 288, 64, "line").text(292, 20, "checkpoint: 4 is done", "small")
d.text(24, 194, "Each partition is read in order. Green events are done; the lag of partition 0 is 4.", "small")
d.write()

d = Drawing("lease", "A lease with an epoch has one owner at a time", 700, 230)
d.text(24, 36, "lease of partition 3", "head")
d.box(24, 50, 210, 50, "ok", "owner A, epoch 7", "renewed every 10 s").box(250, 50, 150, 50, "gone", "not renewed", "for 30 s").box(416, 50, 250, 50, "ok", "owner B, epoch 8", "renewed every 10 s")
d.arrow(24, 118, 676, 118).text(676, 136, "time", "small", "end")
d.box(24, 150, 170, 44, "box", "process A", "paused, or cut off").box(416, 150, 170, 44, "box", "process B")
d.arrow(194, 172, 395, 172, "arrow stop").cross(404, 172).text(296, 164, "a late write, epoch 7", "small", "middle")
d.text(24, 218, "The epoch rises with each acquisition. A write with an older epoch is refused: this is the fence.", "small")
d.write()

d = Drawing("transaction", "One transaction for the writes and the checkpoint", 700, 250)
d.text(24, 40, "partition 0", "head").events(24, 54, "dddlll", 7).text(24, 104, "batch: 10, 11, 12", "small").arrow(232, 67, 300, 90)
d.box(306, 24, 370, 180, "frame")
d.text(322, 48, "BEGIN", "mono")
d.box(322, 58, 338, 32, "ok", "checkpoint 9 → 12, if the epoch is still ours")
d.box(322, 96, 338, 32, "ok", "the rows that the handler writes")
d.box(322, 134, 338, 32, "bad", "dead letters: the events that failed")
d.text(322, 190, "COMMIT", "mono")
d.text(24, 160, "All of it is in the database,", "small").text(24, 178, "or none of it.", "small")
d.text(24, 232, "If the answer to COMMIT is lost, the checkpoint says whether it happened.", "small")
d.write()

d = Drawing("window", "At least once: the window in flight and the low watermark", 700, 230)
d.text(24, 40, "partition 0", "head").events(124, 24, "dddfdffdll", 20)
d.line(224, 16, 224, 60).text(24, 78, "checkpoint, the low watermark: all up to 22 are done", "small")
d.box(210, 96, 236, 40, "fly", "in flight: 23, 25, 26")
d.arrow(446, 116, 520, 116).box(524, 92, 152, 48, "box", "sink", "bulk, rate, order")
d.arrow(600, 140, 600, 168).text(596, 184, "done, in any order", "small", "end")
d.text(24, 194, "24 and 27 are done already and are remembered.", "small")
d.text(24, 214, "After a crash only 23, 25 and 26 are written again, and what was done since the last checkpoint.", "small")
d.write()

d = Drawing("deadletter", "A dead letter and its redrive", 700, 230)
d.text(24, 44, "partition 0", "head").events(124, 28, "ddbdd", 40).text(314, 46, "42 fails for the third time", "small")
d.arrow(207, 56, 207, 92).box(110, 96, 210, 50, "bad", "dead letter 42", "event, error, attempts")
d.arrow(320, 112, 420, 112).text(370, 104, "redrive", "small", "middle").box(424, 92, 130, 40, "box", "handler")
d.arrow(554, 104, 598, 104).box(602, 84, 80, 40, "ok", "applied")
d.arrow(490, 132, 330, 140, by=(420, 176)).text(424, 176, "fails again: it stays", "small", "middle")
d.text(24, 216, "The partition goes on with 43. Nothing waits for the dead letter, and it is not lost.", "small")
d.write()

d = Drawing("fault", "Whose fault is a failure?", 700, 250)
d.box(24, 90, 130, 50, "bad", "42 fails")
d.arrow(154, 104, 216, 60).arrow(154, 115, 216, 115).arrow(154, 126, 216, 172)
d.box(220, 34, 240, 50, "log", "rejected, or it alone fails", "other events succeed")
d.box(220, 92, 240, 50, "fly", "20 in a row fail", "none succeeds")
d.box(220, 150, 240, 50, "fly", "no connection, deadlock,", "no witness, outage")
for y in (59, 117, 175):
    d.arrow(460, y, 506, y)
d.box(510, 34, 166, 50, "bad", "dead letter", "after its attempts")
d.box(510, 92, 166, 50, "box", "one at a time", "until one succeeds")
d.box(510, 150, 166, 50, "box", "the partition waits", "nothing is counted")
d.text(24, 230, "A dead letter is for an event that is bad, not for one that came while something was broken.", "small")
d.write()

d = Drawing("balanced", "Fixed and balanced partitions", 700, 250)
d.text(24, 36, "partitions: 2", "head").text(24, 54, "a fixed number", "small")
d.box(24, 66, 130, 40, "box", "A: 0, 1").box(24, 114, 130, 40, "box", "B: 2, 3").text(24, 180, "More processes: they wait.", "small").text(24, 198, "Fewer: some have no owner.", "small")
d.line(216, 24, 216, 206)
d.text(240, 36, "partitions: balanced", "head").text(240, 54, "two processes", "small").text(480, 54, "a third one starts", "small")
d.box(240, 66, 160, 40, "box", "A: 0, 1, 2").box(240, 114, 160, 40, "box", "B: 3, 4, 5")
d.arrow(410, 110, 466, 110)
d.box(480, 66, 196, 36, "box", "A: 0, 1").box(480, 108, 196, 36, "box", "B: 3, 4").box(480, 150, 196, 36, "ok", "C: 2, 5")
d.text(240, 206, "handed over between two batches, never stolen", "small")
d.text(24, 236, "While no process starts or stops, no partition moves.", "small")
d.write()

d = Drawing("chain", "A chain of stages, and dedup", 700, 230)
d.events(24, 60, "l", 7).text(24, 50, "hub A", "small").arrow(58, 73, 92, 73)
d.box(96, 48, 130, 50, "box", "stage 1", "at least once").arrow(226, 62, 290, 62).arrow(226, 86, 290, 86)
d.text(296, 40, "hub B", "small").box(294, 48, 150, 26, "log", "m1 caused by 0/7").box(294, 80, 150, 26, "log", "m1 caused by 0/7")
d.arrow(444, 61, 500, 70).arrow(444, 93, 500, 78)
d.box(504, 48, 130, 50, "box", "stage 2", "exactly once").arrow(569, 98, 569, 128).box(504, 130, 130, 34, "ok", "one row")
d.text(96, 130, "killed, so it sends the message twice", "small")
d.text(24, 194, "A message is stamped with the event that caused it. Stage 2 commits the id with its checkpoint,", "small")
d.text(24, 212, "and skips the second message: each event takes effect once at the end.", "small")
d.write()

d = Drawing("autoscaler", "The loop of the autoscaler", 700, 220)
d.box(24, 60, 150, 56, "log", "backlog", "lag, queue length").arrow(174, 88, 214, 88)
d.box(218, 60, 130, 56, "box", "collector", "every 15 s").arrow(348, 88, 384, 88)
d.box(388, 60, 130, 56, "box", "logic", "up, down, limits").arrow(518, 88, 554, 88)
d.box(558, 60, 118, 56, "box", "scaler", "sets instances")
d.box(558, 144, 118, 34, "ok", "workers").arrow(617, 116, 617, 140).arrow(558, 161, 99, 120, by=(180, 190))
d.text(250, 150, "more workers, less backlog", "small")
d.text(388, 40, "each decision is logged with its reason", "small")
d.text(24, 206, "Balanced workers share the partitions by themselves when their number changes.", "small")
d.write()

d = Drawing("audit", "The audit: each event has one effect or one dead letter", 700, 230)
d.text(24, 44, "log", "head").events(110, 28, "lllllll", 0)
d.text(24, 98, "rows", "head").events(110, 82, "dd", 0)
d.box(178, 82, 30, 26, "gone").events(212, 82, "d", 3)
d.box(246, 82, 30, 26, "done", "4").box(246, 112, 30, 26, "done", "4")
d.text(24, 168, "dead letters", "head").box(280, 152, 30, 26, "bad", "5")
d.line(314, 16, 314, 186).text(320, 98, "checkpoint: what is after it waits", "small")
d.text(352, 160, "2 is lost, 4 is duplicated", "head")
d.text(24, 214, "By sequence number: events before the checkpoint must have exactly one row or one dead letter.", "small")
d.write()
