"""Launch lines with and without GPUs, and the binding of a rank to what is next to its GPU."""

import os
import subprocess

import pytest

from conftest import ROOT

LAUNCH = ROOT / "scripts" / "launch"


def tool(folder, name, body):
    path = folder / name
    path.write_text("#!/bin/sh\n" + body)
    path.chmod(0o755)


@pytest.fixture
def tools(tmp_path):
    """Launchers that print the line they get, and a taskset that says which cores."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("mpirun", "srun"):
        tool(folder, name, 'echo "$@"\n')
    tool(folder, "taskset", 'echo "cores $2 $UCX_NET_DEVICES $CUDA_DEVICE_ORDER"; shift 2; exec "$@"\n')
    return folder


def run(tools, script, *words, **variables):
    kept = {name: value for name, value in os.environ.items()
            if not name.startswith(("OMPI_", "SLURM_", "CUDA_", "UCX_", "MPI_", "PMI", "MESHBENCH"))}
    return subprocess.run([LAUNCH / script, *words], capture_output=True, text=True,
                          env={**kept, "PATH": f"{tools}:{os.environ['PATH']}", **variables})


@pytest.mark.parametrize("script, words, bound", [
    ("mpirun_openmpi.sh", ["hosts", "16", "8"], "--bind-to core"),
    ("mpirun_mpich.sh", ["hosts", "16", "8"], "-bind-to core:1"),
    ("slurm.sbatch", [], "--cpu-bind=cores")])
def test_ranks_of_cpus_keep_to_cores_those_of_gpus_to_their_gpu(tools, script, words, bound):
    line = run(tools, script, *words, "run", "mesh=dp2.tp8").stdout
    assert bound in line
    assert line.endswith("meshbench run mesh=dp2.tp8 mode=mpi\n")
    assert "bind_gpu" not in line
    line = run(tools, script, *words, "run", "mesh=dp2.tp8", MODE="cuda+mpi", LAUNCH=str(LAUNCH)).stdout
    assert bound not in line
    assert line.endswith(f"{LAUNCH}/bind_gpu.sh meshbench run mesh=dp2.tp8 mode=cuda+mpi\n")


@pytest.fixture
def node(tmp_path):
    """Two GPUs; each has a card at its NUMA node, the first has one behind its bridge too."""
    root = tmp_path / "root"

    def device(address, path, numa_node):
        folder = root / "sys/devices" / path / address
        folder.mkdir(parents=True)
        (folder / "numa_node").write_text(f"{numa_node}\n")
        (folder / "local_cpulist").write_text(f"{4 * numa_node}-{4 * numa_node + 3}\n")
        link = root / "sys/bus/pci/devices" / address
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(folder)
        return folder

    for address, path, numa_node in [("0000:1a:00.0", "pci0000:16/0000:16:01.0", 0),
                                     ("0000:9a:00.0", "pci0000:97/0000:97:01.0", 1)]:
        device(address, path, numa_node)
        (root / "proc/driver/nvidia/gpus" / address).mkdir(parents=True)
    for name, address, path, numa_node in [("mlx5_0", "0000:30:00.0", "pci0000:30", 0),
                                           ("mlx5_1", "0000:18:00.0", "pci0000:16/0000:16:01.0", 0),
                                           ("mlx5_2", "0000:b0:00.0", "pci0000:b0", 1)]:
        card = root / "sys/class/infiniband" / name
        card.mkdir(parents=True)
        (card / "device").symlink_to(device(address, path, numa_node))
    return root


@pytest.mark.parametrize("variables, cores, card", [
    ({"OMPI_COMM_WORLD_LOCAL_RANK": "0"}, "0-3", "mlx5_1:1"),
    ({"MPI_LOCALRANKID": "1"}, "4-7", "mlx5_2:1"),
    ({"SLURM_LOCALID": "2"}, "0-3", "mlx5_1:1"),
    ({"SLURM_LOCALID": "0", "CUDA_VISIBLE_DEVICES": "1"}, "4-7", "mlx5_2:1"),
    ({"SLURM_LOCALID": "1", "UCX_NET_DEVICES": "mine"}, "4-7", "mine")])
def test_a_rank_gets_the_cores_and_the_card_next_to_its_gpu(tools, node, variables, cores, card):
    done = run(tools, "bind_gpu.sh", "echo", "ran", SYSTEM_ROOT=str(node), **variables)
    assert done.stdout == f"cores {cores} {card} PCI_BUS_ID\nran\n", done.stderr


def test_without_a_gpu_the_program_runs_unbound(tools, tmp_path):
    assert run(tools, "bind_gpu.sh", "echo", "ran", SYSTEM_ROOT=str(tmp_path)).stdout == "ran\n"
    refused = run(tools, "bind_gpu.sh")
    assert refused.returncode == 2
    assert "Usage: bind_gpu.sh PROGRAM WORDS..." in refused.stderr
