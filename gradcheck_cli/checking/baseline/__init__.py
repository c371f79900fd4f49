"""What a baseline records about a pair besides its verdict."""
