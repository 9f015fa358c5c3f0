"""The paper's own experiments, one study each, beside what it reports."""
