"""What programs say when memory is not enough or nothing moves: (status, pattern, phase), the first that matches.

Each has a text in the tests, as the program prints it.
"""

import re

SYMPTOMS = [
    ("oom", r"of memory, and this machine has .* left", "start"),
    ("oom", r"no \d+ bytes of memory: ", "start"),
    ("oom", r"std::bad_alloc", "allocation"),
    ("oom", r"CUDA(?: error:|_ERROR_| ?: ?) ?out of memory|cudaErrorMemoryAllocation|CUDA_ERROR_OUT_OF_MEMORY", "allocation"),
    ("oom", r"CUBLAS_STATUS_ALLOC_FAILED", "allocation"),
    ("oom", r"Detected \d+ oom[-_]kill event", "slurm"),
    ("oom", r"Cannot allocate memory", "allocation"),
    ("disk", r"No space left on device|Disk quota exceeded|cannot write", "output"),
    ("timeout", r"no rank has ended an instruction for [0-9.e+]+ s", "step"),
    ("unsupported", r"this build has found no MPI|built without (?:CUDA|NCCL)", "start"),
]


def find(text):
    """(status, phase) of the first symptom in what a program wrote on stderr, or None."""
    return next(((status, phase) for status, pattern, phase in SYMPTOMS if re.search(pattern, text)), None)
