"""What a run could deliver: simple classifiers in closed form and the network that it trains, and which of them is kept."""
