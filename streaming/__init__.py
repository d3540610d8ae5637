"""Samples in, events out: protocol, resampling, voice activity, segmentation, captions.

The law of this room: no torch, no sockets, no threads and no clock. Time is a count of samples.
Only `streaming.protocol` may be imported by `clients`; it needs neither numpy nor torch.
"""
