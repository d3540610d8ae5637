"""Who proposes tokens: drafters, their files and caches, and the text of the hypothesis before."""
