"""The parts of the report: interactive charts, token and response browsers, setting and cost."""
