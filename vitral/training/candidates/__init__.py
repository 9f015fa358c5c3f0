"""What a run could deliver: simple classifiers in closed form and the networks that it trains, and which it delivers."""
