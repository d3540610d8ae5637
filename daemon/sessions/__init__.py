"""Sessions and their connections: who has one, what was told, what may be sent again."""
