"""The client's tests do not see the settings of whoever runs them."""

from tests.config.test_surroundings import test_nothing_of_the_user_is_here

__all__ = ["test_nothing_of_the_user_is_here"]
