"""Samples in, events out: protocol, resampling, voice activity, segmentation, captions.

The law of this room: no torch, no sockets, no threads and no clock. Time is a count of samples.
Of it `clients` import `streaming.protocol` and `streaming.subtitles`, which need neither numpy nor torch.
"""
