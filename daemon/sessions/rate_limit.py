"""How fast a client's audio is read. Pure: times are arguments, in seconds."""

BURST = 10.0  # seconds of audio that may come at once where the rate of audio is limited


class RateLimit:
    """A leaky bucket: `rate` seconds of audio per second, 0 for any number, after BURST at once."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._paid = float("-inf")  # the time by which what came has been paid for

    def take(self, seconds: float, now: float) -> None:
        """Count audio of so many `seconds`."""
        if self._rate:
            self._paid = max(self._paid, now - BURST / self._rate) + seconds / self._rate

    def pause(self, now: float) -> float:
        """How many seconds to wait before more is read; 0 for none."""
        return max(self._paid - now, 0.0)
