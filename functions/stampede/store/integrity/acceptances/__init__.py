"""Dead letters that an operator has accepted as rightly refused."""

__all__ = ["accepted_letters", "decision"]
