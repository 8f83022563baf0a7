"""What happens to live tensors when their file is replaced, deleted or cut: what docs/python.md promises."""

import signal

import pytest

torch = pytest.importorskip("torch")

from states import filled

CODE = """
import json, os, sys, shutil, torch, wpack
path, what, way = sys.argv[1:]
shard = wpack.open(path).shard()
wanted = shard.get_tensor("t1").clone()
state = shard.state_dict(eager=way == "eager", progress=False)
if what == "delete":
    os.unlink(path)
elif what == "replace":
    with open(path + ".new", "wb") as file:
        file.write(b"x" * os.path.getsize(path))
    os.rename(path + ".new", path)
elif what == "truncate":
    os.truncate(path, 4096)
if way == "again":
    try:
        shard.state_dict(eager=True, progress=False)
        print(json.dumps("no error"))
    except wpack.WpackError as error:
        print(json.dumps(type(error).__name__))
elif way == "remap":
    try:
        shard.state_dict()
        print(json.dumps("no error"))
    except wpack.WpackError as error:
        print(json.dumps(type(error).__name__))
else:
    print(json.dumps(bool(torch.equal(state["t1"], wanted))))
"""


@pytest.fixture
def pack(convert):
    return convert({f"t{i}": filled((512, 1024), torch.int32, i) for i in range(4)})


@pytest.mark.parametrize("what", ["delete", "replace"])
@pytest.mark.parametrize("way", ["mapped", "eager"])
def test_a_deleted_or_replaced_file_lives_on(pack, run, what, way):
    assert run(CODE, pack, what, way) is True


@pytest.mark.parametrize("what", ["delete", "replace"])
def test_an_open_shard_goes_on_reading_its_own_file(pack, run, what):
    assert run(CODE, pack, what, "again") == "no error"
    

def test_a_cut_file_is_an_error_for_copying_loads(pack, run):
    assert run(CODE, pack, "truncate", "again") in ("TruncatedError", "ChangedWhileReadError")


def test_a_cut_file_is_an_error_for_new_mappings(pack, run):
    assert run(CODE, pack, "truncate", "remap") in ("TruncatedError", "ChangedWhileReadError")


def test_a_cut_file_does_not_touch_eager_tensors(pack, run):
    assert run(CODE, pack, "truncate", "eager") is True


def test_a_cut_file_ends_a_process_that_touches_mapped_tensors(pack, run):
    """The one case that cannot be an error: a page that is no longer there is a signal. A pack must never
    be written in place; wpack itself writes another file and renames it."""
    done = run(CODE, pack, "truncate", "mapped", check=False)
    assert done.returncode == -signal.SIGBUS
