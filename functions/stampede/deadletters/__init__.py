"""Dead letters: how they lie in the store, and what is done about them."""
