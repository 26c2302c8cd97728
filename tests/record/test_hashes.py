"""Fingerprints say in which iteration, environment and tensor two runs part."""

import json
from dataclasses import replace

import pytest
import torch

from rlcli.core.samples import Samples
from rlcli.record.hashes import FILE, Fingerprint, HashLog, fingerprint, first_difference, read_hashes, weights_hash

N_ROWS, N_ENVS = 3, 4


def samples():
    rows = torch.arange(N_ROWS * N_ENVS).reshape(N_ROWS, N_ENVS)
    no = torch.zeros(N_ROWS, N_ENVS, dtype=torch.bool)
    return Samples(
        obs={"camera": torch.zeros(N_ROWS + 1, N_ENVS, 2, 5, dtype=torch.uint8), "place": torch.zeros(4, N_ENVS, 3)},
        action=rows.clone(),
        reward=rows.float(),
        terminated=no.clone(),
        truncated=no.clone(),
        valid=~no,
        record={"q": torch.zeros(N_ROWS, N_ENVS, 2)},
        state={"h": torch.zeros(N_ENVS, 6)},
    )


def weights():
    return {"trunk.weight": torch.ones(3, 2), "head.bias": torch.zeros(4), "n": torch.tensor(2)}


def taken(of_samples=None, of_weights=None, itr=1):
    return fingerprint(itr, 10 * itr, of_samples or samples(), of_weights or weights())


# one iteration


def test_the_same_numbers_have_the_same_fingerprint():
    assert taken() == taken()
    assert "" == first_difference(taken(), taken())


def leaf_of(made, path):
    field, _, key = path.partition(".")
    value = getattr(made, field)
    return value[key] if key else value


@pytest.mark.parametrize("env_id", [0, 2, 3])
@pytest.mark.parametrize(
    "path",
    ["obs.camera", "obs.place", "action", "reward", "terminated", "truncated", "valid", "record.q", "state.h"],
)
def test_one_changed_element_is_named_by_environment_and_tensor(path, env_id):
    made = samples()
    leaf = leaf_of(made, path)
    place = (env_id, -1) if path == "state.h" else (-1, env_id, *[-1] * (leaf.ndim - 2))
    leaf[place] = 1 - leaf[place].to(torch.int64)

    assert f"env {env_id}, {path}" == first_difference(taken(), taken(made))


def test_the_first_of_several_differences_is_that_of_the_first_environment_and_there_what_came_first():
    made = samples()
    made.reward[0, 1] = made.obs["place"][3, 1, 0] = made.obs["camera"][0, 2, 0, 0] = 9

    assert "env 1, obs.place" == first_difference(taken(), taken(made))


def test_the_smallest_difference_counts():
    made = samples()
    made.reward[2, 1] = torch.nextafter(made.reward[2, 1], torch.tensor(100.0))
    zero = samples()
    zero.record["q"][0, 0, 0] = -0.0

    assert "env 1, reward" == first_difference(taken(), taken(made))
    assert "env 0, record.q" == first_difference(taken(), taken(zero))


def test_changed_weights_alone_are_told_as_such():
    changed = weights()
    changed["head.bias"][3] = 1e-30

    assert "the weights after the update" == first_difference(taken(), taken(of_weights=changed))


def test_a_tensor_more_and_an_environment_more_are_told():
    more = replace(samples(), record={"q": torch.zeros(N_ROWS, N_ENVS, 2), "v": torch.zeros(N_ROWS, N_ENVS)})
    fewer = Fingerprint(1, 10, {path: hashes[:3] for path, hashes in taken().samples.items()}, taken().weights)

    assert first_difference(taken(), taken(more)).startswith("tensors: action, obs.camera, obs.place, record.q, reward")
    assert "record.q, record.v, reward" in first_difference(taken(), taken(more)).partition(" then, ")[2]
    assert "obs.camera: 4 environments then, 3 now" == first_difference(taken(), fewer)


def test_where_a_tensor_lies_in_memory_does_not_matter():
    made = samples()
    elsewhere = replace(made, reward=torch.stack([made.reward, made.reward], -1)[..., 0])

    assert taken() == taken(elsewhere)


def test_no_recurrent_state_and_no_record_are_no_tensors():
    bare = replace(samples(), state=None, record=None)

    assert {"obs.camera", "obs.place", "action", "reward", "terminated", "truncated", "valid"} == set(
        taken(bare).samples
    )


# weights


def test_the_hash_of_weights_is_a_whole_number_that_a_csv_column_holds_exactly():
    found = weights_hash(weights())

    assert 0 <= found < 2**48
    assert int(float(found)) == found


def test_the_hash_of_weights_hangs_on_names_and_values_not_on_their_order_or_layout():
    given = weights()
    turned = {name: given[name] for name in reversed(given)}
    strided = {**given, "trunk.weight": torch.ones(2, 3).t()}

    assert weights_hash(given) == weights_hash(turned) == weights_hash(strided)
    assert weights_hash(given) != weights_hash({**given, "n": torch.tensor(3)})
    assert weights_hash(given) != weights_hash({("tail.bias" if k == "head.bias" else k): v for k, v in given.items()})


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.bool, torch.float64])
def test_weights_of_every_dtype_have_a_hash(dtype):
    one, other = ({"w": torch.tensor([0, second]).to(dtype), "empty": torch.empty(0)} for second in (0, 1))

    assert weights_hash(one) != weights_hash(other)


# the file


@pytest.fixture
def folder(tmp_path):
    log = HashLog(tmp_path, 4)
    for itr in range(1, 8):
        log.add(itr, 10 * itr, samples(), {"w": torch.tensor([itr])})
    return tmp_path


def test_the_first_iterations_are_written_and_no_more(folder):
    assert [(1, 10), (2, 20), (3, 30), (4, 40)] == [(entry.itr, entry.step) for entry in read_hashes(folder)]


def test_what_was_written_reads_back_equal(folder):
    for entry in read_hashes(folder):
        assert "" == first_difference(entry, taken(of_weights={"w": torch.tensor([entry.itr])}, itr=entry.itr))


def test_none_are_asked_for_and_no_file_is_made(tmp_path):
    HashLog(tmp_path, 0).add(1, 10, samples(), weights())

    assert [] == list(tmp_path.iterdir())
    assert [] == read_hashes(tmp_path)


@pytest.mark.parametrize(("itr", "left"), [(0, []), (2, [1, 2]), (4, [1, 2, 3, 4]), (9, [1, 2, 3, 4])])
def test_a_cut_drops_what_came_after_the_checkpoint(folder, itr, left):
    HashLog(folder, 4).cut(itr)

    assert left == [entry.itr for entry in read_hashes(folder)]
    assert [FILE] == [path.name for path in folder.iterdir()]


def test_a_cut_keeps_the_bytes_of_the_lines_it_keeps(folder):
    lines = (folder / FILE).read_text().splitlines(keepends=True)
    HashLog(folder, 4).cut(3)

    assert "".join(lines[:3]) == (folder / FILE).read_text()


def test_a_cut_without_a_file_does_nothing(tmp_path):
    HashLog(tmp_path, 4).cut(2)

    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize("n_bytes", [1, 2, 40, 200])
def test_a_line_cut_short_is_left_out_and_a_run_that_goes_on_mends_it(folder, n_bytes):
    text = (folder / FILE).read_text()
    (folder / FILE).write_text(text[:-n_bytes])

    assert ([1, 2, 3, 4] if n_bytes == 1 else [1, 2, 3]) == [entry.itr for entry in read_hashes(folder)]
    log = HashLog(folder, 4)
    log.cut(3)
    log.add(4, 40, samples(), {"w": torch.tensor([4])})

    assert text == (folder / FILE).read_text()


def test_a_line_that_is_no_fingerprint_ends_the_list(folder):
    with (folder / FILE).open("a") as file:
        file.write(json.dumps([1, 2]) + "\n")

    assert 4 == len(read_hashes(folder))
