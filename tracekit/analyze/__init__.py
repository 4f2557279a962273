"""Pure functions from tables to tables: attribution, gaps, ledger, counters, blocks, summary."""
