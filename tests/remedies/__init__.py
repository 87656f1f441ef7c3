"""Every remedy an error of the package gives: what it says is done in the situation that raises it."""
