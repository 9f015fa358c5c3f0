"""What makes a classifier fit for use on a machine: calibrated, quantized, tuned and timed."""
