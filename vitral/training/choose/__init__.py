"""What is decided of a run before it begins: each choice a pure function of request, facts and what was chosen before."""
