"""What a run writes into its folder, and how it continues from there."""
