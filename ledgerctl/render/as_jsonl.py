"""Write one compact JSON object a line, every key of each record, in constant memory."""

from ledgerctl.render.exact import Encoder
from ledgerctl.render.output import Look, Output, batches
from ledgerctl.render.report import Report


def write(report: Report, output: Output, _: Look) -> int:
    """Write the records as they come; return how many there were."""
    encoder = Encoder(ascii_only=not output.is_unicode, separators=(",", ":"))
    count = 0
    for batch in batches(report.records):
        output.write(encoder.join(batch, "\n") + "\n")
        count += len(batch)
    return count
