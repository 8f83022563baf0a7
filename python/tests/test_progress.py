"""Who sees progress: a terminal where tqdm is installed, and whoever asks."""

import sys

import pytest

torch = pytest.importorskip("torch")
tqdm = pytest.importorskip("tqdm")

import wpack
from states import filled
from wpack import _progress


class Bar:
    """A stand-in for ``tqdm.tqdm`` that notes what it is told."""

    made = []

    def __init__(self, total, desc, **options):
        self.total, self.desc, self.n, self.closed = total, desc, 0, False
        Bar.made.append(self)

    def update(self, more):
        assert not self.closed and more >= 0
        self.n += more

    def close(self):
        self.closed = True


@pytest.fixture
def bars(monkeypatch):
    monkeypatch.setattr(Bar, "made", [])
    monkeypatch.setattr(tqdm, "tqdm", Bar)
    return Bar.made


class Terminal:
    def __init__(self, terminal):
        self.terminal = terminal

    def isatty(self):
        return self.terminal

    def write(self, text):
        return len(text)

    def flush(self):
        pass


@pytest.mark.parametrize("terminal", [True, False])
@pytest.mark.parametrize("progress", [None, True, False])
def test_a_bar_where_someone_can_see_it(convert, bars, monkeypatch, terminal, progress):
    shard = wpack.open(convert({"x": filled((1 << 20,), torch.uint8)})).shard()
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", Terminal(terminal))
        shard.state_dict(eager=True, progress=progress)
        shard.verify(progress=progress)
    shown = progress is True or (progress is None and terminal)
    assert ["load" in [bar.desc for bar in bars], "verify" in [bar.desc for bar in bars]] == [shown, shown]
    assert all(bar.closed and bar.n == bar.total > 0 for bar in bars)


def test_without_tqdm_nothing_is_shown(monkeypatch):
    monkeypatch.setitem(sys.modules, "tqdm", None)
    monkeypatch.setattr(sys, "stderr", Terminal(True))
    assert _progress.choose(None) is None and _progress.choose(True) is None


def test_a_program_without_standard_error(monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)
    assert _progress.choose(None) is None


def test_a_bar_is_closed_when_its_stage_or_its_work_ends(bars):
    show = _progress.choose(True)
    show("read", 1, 10)
    show("check", 2, 10)
    assert [(bar.desc, bar.n, bar.closed) for bar in bars] == [("read", 1, True), ("check", 2, False)]
    del show  # As when an error ends the work half way.
    assert bars[1].closed
