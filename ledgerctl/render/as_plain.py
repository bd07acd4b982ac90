"""Tab-separated lines under a header of keys: never wrapped, never coloured, ids whole."""

from ledgerctl.render.output import Look, Output, batches
from ledgerctl.render.report import Report
from ledgerctl.render.text import cell_text


def write(report: Report, output: Output, look: Look) -> int:
    """Write header and records, or the report's own text in their place; return the record count.

    None is an empty cell. A tab or newline in the data is a visible escape, so that a line is
    always one record and has always as many tabs.
    """
    if report.text is not None:
        for line in report.text:
            output.line(line)
        return 0
    keys = [column.key for column in report.columns]
    if look.header:
        output.write("\t".join(map(output.visible, keys)) + "\n")
    show = output.visible
    count = 0
    for batch in batches(report.records):
        lines = ["\t".join([show(cell_text(record.get(key))) for key in keys]) for record in batch]
        output.write("\n".join(lines) + "\n")
        count += len(batch)
    return count
