"""Files that are transcribed as a whole: uploads, their decoding, their way through the recogniser."""
