from model.bench.word_errors import normalised, word_errors


def test_what_whisper_s_normaliser_forgives() -> None:
    """Case, punctuation, contractions, numbers in words, and British spelling."""
    assert normalised("Mr. Brown can't see TWENTY-FIVE colours!") == normalised(
        "mister brown can not see 25 colors"
    )


def test_errors_are_counted_over_all_texts_together() -> None:
    """One substitution, one deletion and one insertion in eight words."""
    found = word_errors(
        ["one cat sat down", "the dog ran off"], ["one rat sat", "the dog ran off now"]
    )
    assert found == {
        "wer_percent": 37.5,
        "reference_words": 8,
        "errors": 3,
        "substitutions": 1,
        "deletions": 1,
        "insertions": 1,
    }
