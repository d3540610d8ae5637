"""Making drafters and readers: audio in, a trained network out. Nothing that serves imports from here."""
