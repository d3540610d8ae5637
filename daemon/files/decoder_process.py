"""What runs in the decoder's process: a container on standard input, a line about it and samples on the output.

libav reads what strangers sent, so that this process may hang, grow or crash: it has limits, and nothing else is
in it. Standard error gets one line, and the exit status is 1, where nothing can be decoded.
"""

import json
import os
import resource
import sys

from streaming.containers import ContainerError, recording

MEMORY = 2**30  # bytes of address space
CPU_SECONDS = 1200  # enough for days of sound
FILES = 16  # descriptors: what is open, and a few more


def main() -> int:
    """Decode. 0: to the end; 1: it cannot be."""
    os.nice(10)  # live captions go first
    for limit, value in (
        (resource.RLIMIT_AS, MEMORY),
        (resource.RLIMIT_CPU, CPU_SECONDS),
        (resource.RLIMIT_NOFILE, FILES),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(limit, (value, value))
    try:
        with recording(sys.stdin.buffer) as found:
            about = {
                "encoding": found.encoding,
                "rate": found.rate,
                "channels": found.channels,
                "duration": found.duration,
            }
            sys.stdout.buffer.write(json.dumps(about).encode() + b"\n")
            sys.stdout.buffer.flush()
            for block in found.blocks:
                sys.stdout.buffer.write(block)
            sys.stdout.buffer.flush()
    except ContainerError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    except BrokenPipeError:
        return 1  # nobody wants the rest
    except MemoryError:
        sys.stderr.write("the file needs too much memory\n")
        return 1
    return 0


if __name__ == "__main__":
    status = main()
    sys.stderr.flush()
    os._exit(status)  # a broken pipe must not be flushed again
