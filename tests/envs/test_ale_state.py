"""An emulator that was saved goes on as it would have, sticky actions included; saving it changes nothing."""

from functools import cache

import numpy as np
import pytest

from rlcli.core.errors import InexactError
from rlcli.envs import ale_state
from rlcli.envs.ale_state import _Stream
from rlcli.envs.atari_names import load_ale


def emulator(name, sticky, seed=0):
    """At a game's beginning."""
    ale_py = load_ale()
    ale = ale_py.ALEInterface()
    ale.setFloat("repeat_action_probability", sticky)
    ale.setInt("random_seed", seed)
    ale.loadROM(ale_py.roms.get_rom_path(name))
    return ale


@cache
def another(name, sticky):
    """An emulator to load into; one for all tests, since a game takes long to load."""
    ale = emulator(name, sticky, seed=77)
    play(ale, 50, 0)
    return ale


def play(ale, n_frames, seed):
    """Moves drawn at random; what came of them, frame by frame, and the last screen."""
    moves, rng = ale.getLegalActionSet(), np.random.default_rng(seed)
    seen = []
    for index in rng.integers(len(moves), size=n_frames):
        if ale.game_over():
            ale.reset_game()
        seen.append((ale.act(moves[index]), ale.lives(), ale.game_over(), ale.getRAM().tobytes()))
    seen.append(ale.getScreenRGB().tobytes())
    return seen


def stream_of(ale):
    return _Stream.of(ale.cloneState(include_rng=True).serialize())


# exact


@pytest.mark.parametrize(
    ("name", "sticky"),
    [(name, sticky) for name in ("pong", "breakout", "space_invaders") for sticky in (0.25, 0.9)] + [("pong", 0.0)],
)
def test_saves_change_nothing_and_each_goes_on_in_another_emulator_bit_for_bit(name, sticky):
    """Two games with paddles, one with a joystick."""
    live, never_saved = emulator(name, sticky), emulator(name, sticky)
    other, found = another(name, sticky), set()
    for seed in range(15):
        record = ale_state.save(live)
        expected = play(live, 60, seed)

        assert play(never_saved, 60, seed) == expected, seed
        ale_state.load(other, record)
        assert expected == play(other, 60, seed), seed
        found.add(record["last_move"])

    assert (sticky > 0) == bool(found - {None})
    assert sticky < 0.9 or len(found) > 3


@pytest.mark.parametrize("sticky", [0.25, 0.9])
def test_a_record_goes_on_after_a_longer_way_too_and_more_than_once(sticky):
    live, other = emulator("pong", sticky, 3), another("pong", sticky)
    play(live, 41, 1)
    record = ale_state.save(live)
    expected = play(live, 1000, 2)

    for _ in range(2):
        ale_state.load(other, record)
        assert expected == play(other, 1000, 2)
    ale_state.load(live, record)
    assert expected == play(live, 1000, 2)


@pytest.mark.parametrize("sticky", [0.25, 0.9])
def test_a_save_of_what_was_loaded_is_the_same_save(sticky):
    live, other = emulator("space_invaders", sticky, 4), another("space_invaders", sticky)
    for seed in range(12):
        play(live, 17, seed)
        record = ale_state.save(live)
        ale_state.load(other, record)

        assert record == ale_state.save(other)
        assert record == ale_state.save(live)


@pytest.mark.parametrize("sticky", [0.25, 0.9])
def test_a_game_that_is_over_and_one_that_has_just_begun_go_on(sticky):
    live, other = emulator("breakout", sticky, 5), another("breakout", sticky)
    fresh = ale_state.save(live)
    expected = play(live, 60, 0)
    ale_state.load(other, fresh)
    assert expected == play(other, 60, 0)

    rng, moves = np.random.default_rng(0), live.getMinimalActionSet()
    while not live.game_over():
        live.act(moves[rng.integers(len(moves))])
    record = ale_state.save(live)
    ale_state.load(other, record)

    assert other.game_over()
    assert play(live, 300, 1) == play(other, 300, 1)


# what the random stream says of the last move


@pytest.mark.parametrize("probability", [0.25, 0.5, 0.9])
def test_the_last_move_is_looked_for_just_when_the_stream_says_that_it_will_be_repeated(probability):
    live, counts = emulator("pong", probability, 6), []
    for seed in range(40):
        play(live, 5, seed)
        record = ale_state.save(live)
        counts.append(stream_of(live).n_repeats(probability))

        assert (counts[-1] == 0) == (record["last_move"] is None)

    # of a geometric distribution: mean p / (1 - p), standard error sqrt(p) / (1 - p) / sqrt(40)
    mean, error = probability / (1 - probability), np.sqrt(probability) / (1 - probability) / np.sqrt(40)
    assert abs(np.mean(counts) - mean) < 4 * error


def test_a_frame_takes_its_own_move_just_when_the_stream_says_so():
    """The paddle tells: pushed one way all the time, it moves only from the frame on in which a push counts."""
    ale = emulator("breakout", 0.9, 7)
    right, left = (move for move in ale.getMinimalActionSet() if move.name in ("RIGHT", "LEFT"))
    seen = set()
    for _ in range(12):
        for move in (right, left):
            n = stream_of(ale).n_repeats(0.9)
            saved = ale_state.save(ale)
            for n_frames in {n, n + 1}:  # up to n, the given move does not matter; then it does
                outcomes = set()
                for given in (right, left):
                    ale_state.load(ale, saved)
                    for _ in range(n_frames):
                        ale.act(given)
                    outcomes.add(ale.cloneState().serialize())
                seen.add((n_frames > n, len(outcomes)))
            ale_state.load(ale, saved)
            for _ in range(n + 2):
                ale.act(move)

    assert {(False, 1), (True, 2)} == seen


def words(seed=1, position=300):
    key = np.random.MT19937(seed).state["state"]["key"]
    return [*(int(word) for word in key), position]


def text(numbers, after=b"\x00\x07"):
    """As ALE writes a text into a state: its length, then itself."""
    written = b" ".join(str(number).encode() for number in numbers)
    return b"\x00state 12 " + len(written).to_bytes(4, "little") + written + after


@pytest.mark.parametrize("position", [0, 1, 622, 623, 624])
def test_every_second_number_of_the_stream_decides_wherever_it_stands(position):
    twister = np.random.MT19937()
    twister.state = {
        "bit_generator": "MT19937",
        "state": {"key": np.array(words()[:-1], np.uint32), "pos": position},
    }
    drawn = [int(twister.random_raw()) / 2**32 for _ in range(400)][::2]
    for probability in (0.05, 0.3, 0.6, 0.95):
        expected = next(i for i, number in enumerate(drawn) if number >= probability)

        assert expected == _Stream.of(text(words(position=position))).n_repeats(probability)


@pytest.mark.parametrize(
    "state",
    [
        b"",
        b"\x00no stream\xff",
        text(words()[:-2]),
        text([*words(), 5]),
        text(words(position=625)),
        text(words()).replace(b" ", b","),
    ],
    ids=["nothing", "none", "a word short", "a word more", "position beyond the end", "other separators"],
)
def test_a_stream_that_is_written_otherwise_is_refused(state):
    with pytest.raises(InexactError, match="random stream cannot be read on this system, and it has sticky actions"):
        _Stream.of(state)


def test_the_last_of_several_streams_is_that_of_acting():
    state = text(words(seed=2)) + text(words(seed=3, position=7))

    assert str(words(seed=3)[0]).encode() == _Stream.of(state).tokens[0]


def test_a_stream_that_is_put_in_keeps_the_states_length():
    state = text(words())
    stream = _Stream.of(state)
    for changed in (stream.always_repeating(state), stream.taking_next(state, 0.9)):
        assert len(state) == len(changed)
        assert state[:14] == changed[:14]
        assert changed.endswith(b"\x00\x07")
    assert _Stream.of(stream.always_repeating(state)).n_repeats(0.01) > 10_000
    assert 0 == _Stream.of(stream.taking_next(state, 0.9)).n_repeats(0.9)


@pytest.mark.parametrize("position", [0, 5, 99, 300, 623, 624])
@pytest.mark.parametrize("probability", [0.01, 0.25, 0.9, 0.999])
def test_a_stream_that_stands_at_a_small_number_can_be_put_in_too(position, probability):
    """A game's seed is the first number of its stream; a small one has no room for the digits of a large draw."""
    numbers = words(position=position)
    numbers[position % 624] = 3
    state = text(numbers)

    assert 0 == _Stream.of(_Stream.of(state).taking_next(state, probability)).n_repeats(probability)


# what cannot be saved


def test_an_emulator_that_skips_frames_by_itself_is_refused_with_sticky_actions_alone():
    ale = emulator("pong", 0.9, 8)
    ale.setInt("frame_skip", 4)
    while not stream_of(ale).n_repeats(0.9):
        ale.act(ale.getLegalActionSet()[0])
    before = ale.cloneState(include_rng=True).serialize()
    with pytest.raises(InexactError, match="skips frames by itself and has sticky actions"):
        ale_state.save(ale)
    assert before == ale.cloneState(include_rng=True).serialize()

    ale.setFloat("repeat_action_probability", 0.0)
    assert ale_state.save(ale)["last_move"] is None
