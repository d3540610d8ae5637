"""Making drafters: audio in, a trained network out. Nothing that serves imports from here."""
