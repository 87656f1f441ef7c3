"""The numbered contracts, which tests hold them, and the page that lists them."""
