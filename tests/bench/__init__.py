"""What the program costs beside a floor and beside its peers: ratios, all taken in turns in one run."""
