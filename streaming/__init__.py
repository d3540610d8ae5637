"""Samples in, events out: protocol, resampling, voice activity, segmentation, captions.

The room uses no torch, no sockets, no threads and no clock: time is a count of samples. `clients` import
`streaming.protocol` and `streaming.subtitles` from it, which need neither numpy nor torch.
"""
