"""pytest tests/bench/cli/test_place.py: meshbench place, and cases whose ranks and links are placed."""

import json
import os
import subprocess
from pathlib import Path

import jsonschema
import pytest

ROOT = Path(__file__).resolve().parents[3]
BIN = Path(os.environ.get("MESHBENCH_BIN", ROOT / "build" / "cpu" / "bench"))
BIG = ["model=gpt-100b", "mesh=dp2.pp4.tp8", "mode=sim", "machine=h100x8", "micro_batch=4", "global_batch=32"]
SMALL = ["model=gpt-tiny", "mesh=dp2.tp2", "ranks_per_node=2", "micro_batch=1", "global_batch=4", "steps=2", "warm_up=1"]
LINK = "link=intra:4GB/s,2us;inter:0.01GB/s,100us"


def meshbench(*words):
    return subprocess.run([BIN / "meshbench", *words], capture_output=True, text=True, timeout=120)


def rows_of(*words):
    done = meshbench("place", *words, "--json")
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    validator = jsonschema.Draft202012Validator(json.loads((ROOT / "bench/report/row.schema.json").read_text()))
    for row in rows:
        validator.validate(row)
    return rows


def axis(row, name):
    return next(a for a in row["placement"]["axes"] if a["axis"] == name)


@pytest.fixture(scope="module")
def big():
    return rows_of(*BIG)


def test_orders_that_fill_nodes_alike_are_one(big):
    assert sorted(sorted(row["placement"]["orders"]) for row in big) == [
        ["dp,pp,tp", "pp,dp,tp"], ["dp,tp,pp"], ["pp,tp,dp"], ["tp,dp,pp", "tp,pp,dp"]]


def test_tensor_ranks_stay_within_nodes_of_8_where_they_come_first(big):
    best, *others = big
    assert best["placement"]["orders"] == ["tp,dp,pp", "tp,pp,dp"]
    assert axis(best, "tp")["link"] == "intra" and axis(best, "tp")["inter_bytes"] == 0
    assert sorted(best["placement"]["crossing_axes"]) == ["dp", "pp"]
    for row in others:
        assert axis(row, "tp")["crossing"] == 8
        assert row["placement"]["times_the_best"] > 1.1


def test_tensor_ranks_across_nodes_take_what_the_closed_form_says(big):
    """A ring of 8 with a member on each node, and as many rings as NICs: the protocol that takes least."""
    traffic = json.loads(meshbench("traffic", *BIG, "--json").stdout)["pipeline_ranks"]
    machine = big[0]["machine"]

    net, rate = machine["nic_latency_us"], machine["nic_gb_per_s"] * machine["nic_efficiency"]

    def call(size):  # hops of a ring or a tree as shares of Simple's, what carries data, before the first hop
        return min(base + min(14 * net * ring, 6 * net * tree) + 1.75 * size / rate / 1e3 / carried
                   for ring, tree, carried, base in ((2.7 / 14, 5 / 14, 0.5, 6.6), (4 / 14, 8.5 / 14, 120 / 128, 14),
                                                     (1, 1, 1, 8.4)))

    across = max(sum(row["plan"]["calls"] * call(row["plan"]["bytes"] / row["plan"]["calls"]) * 1e-6
                     for row in stage["traffic"] if row["axis"] == "tp") for stage in traffic)
    apart, = (row for row in big if "dp,pp,tp" in row["placement"]["orders"])
    assert axis(apart, "tp")["seconds"] == pytest.approx(across, rel=0.01)


def test_every_order_sends_the_same_bytes_over_one_link_or_the_other(big):
    sums = [row["placement"]["intra_bytes"] + row["placement"]["inter_bytes"] for row in big]
    assert max(sums) == pytest.approx(min(sums), rel=1e-9)


def test_the_case_of_a_row_has_its_order(big):
    slow = big[-1]
    again = json.loads(meshbench("run", *slow["case"].split(), "--json").stdout)
    assert again["metrics"]["step_s"]["value"] == slow["metrics"]["simulated_step_s"]["value"]
    assert again["mesh"]["order"].startswith(slow["placement"]["orders"][0].replace(",", "-"))


def test_text_says_what_to_put_where_and_what_the_wrong_choice_costs():
    text = meshbench("place", *BIG).stdout
    assert "Best: order=tp,dp,pp. Within nodes: tp. Between nodes: pp and dp." in text
    assert "Worst: order=" in text and "times the step" in text


def test_chosen_orders_are_compared_alone():
    rows = rows_of(*BIG, "--orders", "tp,dp,pp;tp-pp-dp")
    assert [row["placement"]["orders"] for row in rows] == [["tp,dp,pp"], ["tp,pp,dp"]]


def test_steps_are_measured_over_shaped_links(tmp_path):
    done = meshbench("place", *SMALL, LINK, "--run", "-o", str(tmp_path / "rows.jsonl"))
    assert done.returncode == 0, done.stderr
    assert "step, measured" in done.stdout
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert [row["metrics"]["step_s"]["n"] for row in rows] == [6, 6]
    assert rows[0]["params"]["link"] == LINK.removeprefix("link=")


def test_uneven_nodes_are_placed_by_a_list():
    rows = rows_of("model=gpt-tiny", "mesh=dp3.tp2", "global_batch=12", "nodes=0,0,0,0,1,1", "mode=sim")
    assert rows[0]["placement"]["orders"] == ["tp,dp"]
    assert axis(rows[0], "tp")["inter_bytes"] == 0
    assert axis(rows[0], "dp")["link"] == "mixed"


@pytest.mark.parametrize("words, parts", [
    ([*BIG, "--run"], ["--run", "mode=threads"]),
    ([*SMALL, "--run"], ["--run", "link="]),
    ([*BIG, "--orders", "tp,dp"], ["leaves out pp"]),
    ([*BIG, "--orders", "tp,dp,pp;tp-dp-pp"], ["twice"]),
    ([*BIG, "--orders", ";"], ["--orders", "e.g."]),
    ([*BIG, LINK], ["link=", "machine.link_gb_per_s"]),
    (["mesh=dp2", "nodes=0"], ["nodes of 1", "2 ranks"]),
])
def test_what_cannot_be_placed_is_refused(words, parts):
    done = meshbench("place", *words)
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    for part in parts:
        assert part in done.stderr


@pytest.mark.parametrize("placed", [["order=dp,tp"], ["nodes=0,1,1,0"], [LINK], ["order=dp-tp", "ranks_per_node=2", LINK]])
def test_a_placed_case_trains_to_the_same_losses_and_its_row_holds(placed):
    plain, row = (json.loads(meshbench("run", *SMALL[:2], "micro_batch=1", "global_batch=4", "steps=2", *words, "--json").stdout)
                  for words in ([], placed))
    assert row["training"]["losses"] == plain["training"]["losses"]
    assert row["verified"]["ok"]
    jsonschema.validate(row, json.loads((ROOT / "bench/report/row.schema.json").read_text()))
