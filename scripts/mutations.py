#!/usr/bin/env python3
"""mutations.py [NAME...]: switches on one fault after the other, each of which a named test has to notice.

The faults are those that other training systems had (FAULTS), compiled in where they would stand here,
`mutated("NAME")` in the sources, by a build of its own in build/mutations. Prints a table; exits with 0
if all are caught, 1 if any survives, 2 if the build or an unmutated test fails or a NAME is not known.
"""

import argparse
import dataclasses
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TIMEOUT_S = 120

# name | where it happened | test program | the test that notices it
FAULTS = """
last_layers_dropped           | Megatron-LM#1304, torchtitan#963  | traps_test        | Layers.ThatDoNotDivideByTheStagesAreAllThere
layout_ignored                | Megatron-LM#381, mlx-lm#1688      | traps_test        | Layers.ThatDoNotDivideByTheStagesAreAllThere
pad_columns_counted           | Megatron-LM#1754                  | traps_test        | Vocabulary.ThatDoesNotDivideByTheTensorRanksTrainsAsOnOne
gathered_logits               | Megatron-LM#7452, item 2          | traps_test        | Loss.OfAFreshModelIsTheLogarithmOfTheVocabularyForAnyTensorRanks
loss_of_a_slice               | Megatron-LM#737, #7464            | traps_test        | Loss.IsTheSameOverAnyNumberOfVocabularySlices
norm_counts_copies            | NeMo-RL#3788                      | traps_test        | Norm.IsTheSameForAnyTensorRanks
norm_of_a_rank                | DeepSpeed#7837                    | traps_test        | Norm.IsTheSameForAnyDataRanksAndWhateverTheyDivide
tied_sum_left_out             | Megatron-LM#844                   | traps_test        | Tied.TrainsAsOneRankUnderEverySchedule
tied_partitions_differ        | Megatron-LM#844                   | traps_test        | Tied.WithAShardedOptimizerTrainsAsOneRank
padding_left_out              | DeepSpeed#6974                    | traps_test        | Padding.OnAnyNumberOfRanksTrainsAsOneRank
reduced_slice_overwritten     | DeepSpeed#966, #5294              | traps_test        | Zero.StagesAgreeAfterThreeSteps
waits_left_out                | DeepSpeed#8061                    | bit_equality_test | Cases/Rich.CaseKeepsItsBitsUnderRandomDelaysOfCommunication/0
gradient_never_cleared        | Megatron-LM#4609                  | bit_equality_test | Cases/Rich.CaseNeverReadsWhatARankDoesNotHold/1
reduced_again                 | ColossalAI#247                    | traps_test        | Accumulation.OfAnyNumberOfMicroBatchesIsOneLargeBatch
gradient_cleared_each_time    | DeepSpeed#5154                    | traps_test        | Accumulation.OfAnyNumberOfMicroBatchesIsOneLargeBatch
mean_of_means                 | torchtitan#2206, torchtune#1875   | traps_test        | Loss.WeighsEveryValidTokenAlikeHoweverTheyAreSpread
summed_over_context_twice     | Megatron-LM#673                   | traps_test        | Context.RanksGetTheGradientsOfOneRank
dropout_by_rank               | Megatron-LM#1256, #206            | traps_test        | Dropout.DropsTheSameOnEveryMesh
dropout_not_restored          | Megatron-LM#4828                  | bit_equality_test | Cases/Rich.CaseKeepsItsBitsWhateverIsRecomputed/0
partial_gradients_apart       | Megatron-LM, sequence parallelism | traps_test        | Norm.IsTheSameForAnyTensorRanks
shared_heads_apart            | bigcode Megatron-LM#35            | traps_test        | KeyValueHeads.FewerThanTensorRanksGetTheGradientsOfAll
few_micro_batches_not_drained | torchtitan#775                    | traps_test        | Pipeline.WithFewerMicroBatchesThanStagesRunsOrIsRefused
one_chunk_warms_up_longer     | ColossalAI#796                    | schedule_test     | Interleaved.OfOneChunkIsOneFOneBSlotBySlot
receives_swapped              | PiPPy#1088, pytorch#152938        | traps_test        | Pipeline.EndsWithoutAnyBufferUnderEverySchedule
weight_half_twice             | pytorch#180952, zero-bubble#17    | traps_test        | SplitBackward.OfTiedWeightsHasTheBitsOfTheWhole
weight_half_not_reduced       | pytorch#144530                    | traps_test        | SplitBackward.GradientsAreSummedOverDataRanks
mean_instead_of_sum           | pytorch#162338                    | traps_test        | Mean.OfGradientsIsTheSumOverTheTokensOfAllRanks
sends_outside_group           | NCCL, point-to-point              | nccl_world_test   | NcclComm.LetsBuffersBeUsedAgainInTheOrderOfTheStream
size_as_count                 | llm.c                             | traps_test        | StepScalars.NextToTheSumsAreSummedByNobody
device_waits_left_out         | as waits_left_out, on a GPU       | cuda_rank_test    | CudaRank.TrainsToTheSameBitsHoweverSlowStreamsAre
device_operands_swapped       | row-major by a column-major BLAS  | cuda_rank_test    | CudaRank.TrainsAsOneRankOnACpu
device_memory_freed           | memory that its owner gave back   | cuda_rank_test    | CudaRank.TrainsAsOneRankOnACpu
staging_not_awaited           | pinned memory reused too early    | cuda_rank_test    | CudaRank.TrainsToTheSameBitsHoweverSlowStreamsAre
"""

# Faults that cost time or traffic and change no number: `mb gate --builds` notices them, see results/gate/notes.md.
COSTS = ["gelu_repeated", "gathered_twice"]


@dataclasses.dataclass(frozen=True)
class Fault:
    name: str
    source: str
    program: str
    test: str


def parse(text):
    """The Faults of lines with four columns."""
    rows = [[cell.strip() for cell in line.split("|")] for line in text.splitlines() if line.strip()]
    wrong = [row for row in rows if len(row) != 4 or not all(row)]
    if wrong:
        raise ValueError(f"not four columns: {' | '.join(wrong[0])}")
    faults = [Fault(*row) for row in rows]
    names = [fault.name for fault in faults]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"named twice: {', '.join(twice)}")
    return faults


def table(results):
    """Lines for [(Fault, verdict)], columns aligned."""
    rows = [("fault", "happened in", "test", "verdict")]
    rows += [(f.name, f.source, f"{f.program} {f.test}", verdict) for f, verdict in results]
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    return ["  ".join([*(cell.ljust(w) for cell, w in zip(row, widths)), row[3]]) for row in rows]


def configure(folder):
    """The programs that a build with the faults in it has; None if it cannot be configured."""
    command = ["cmake", "-S", ROOT, "-B", folder, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release", "-DMB_MUTATIONS=ON"]
    if subprocess.run(command, stdout=subprocess.DEVNULL).returncode != 0:
        return None
    done = subprocess.run(["cmake", "--build", folder, "--target", "help"], capture_output=True, text=True)
    return {line.split(":")[0] for line in done.stdout.splitlines()}


def build(folder, programs):
    """Whether the programs are built."""
    command = ["cmake", "--build", folder, "--target", *programs]
    return subprocess.run(command, stdout=subprocess.DEVNULL).returncode == 0


def passes(folder, program, test, fault=""):
    """Whether the test runs and passes; a crash is no pass, nor is running out of time."""
    try:
        done = subprocess.run([folder / "tests" / program, f"--gtest_filter={test}"], capture_output=True,
                              text=True, errors="replace", timeout=TIMEOUT_S,
                              env={**os.environ, "MB_MUTATION": fault})
    except subprocess.TimeoutExpired:
        return False
    if done.returncode == 0 and "[  PASSED  ] 1 test" not in done.stdout:
        raise ValueError(f"{program} has no test {test}")
    return done.returncode == 0


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="faults; default: all")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "mutations",
                        help="build folder (default: %(default)s)")
    options = parser.parse_args(arguments)
    faults = parse(FAULTS)
    unknown = set(options.names) - {fault.name for fault in faults}
    if unknown:
        print(f"mutations: no fault {', '.join(sorted(unknown))}; there are "
              f"{', '.join(fault.name for fault in faults)}", file=sys.stderr)
        return 2
    faults = [fault for fault in faults if not options.names or fault.name in options.names]
    there = configure(options.build)
    left_out = sorted({fault.program for fault in faults} - there) if there else []
    faults = [fault for fault in faults if fault.program not in left_out]
    if left_out:
        print(f"mutations: without {', '.join(left_out)}, which want a CUDA toolkit", file=sys.stderr)
    if not there or not build(options.build, sorted({fault.program for fault in faults})):
        print("mutations: the build failed", file=sys.stderr)
        return 2
    for program, test in sorted({(fault.program, fault.test) for fault in faults}):
        if not passes(options.build, program, test):
            print(f"mutations: {program} {test} fails without any fault", file=sys.stderr)
            return 2
    results = []
    for fault in faults:
        survived = passes(options.build, fault.program, fault.test, fault.name)
        results.append((fault, "SURVIVED" if survived else "caught"))
    print("\n".join(table(results)))
    return int(any(verdict == "SURVIVED" for _, verdict in results))


if __name__ == "__main__":
    sys.exit(main())
