"""The device rule, with a stand-in for torch.cuda: no GPU is needed, and index 0 never wins by accident."""

import os
import pathlib

import pytest

torch = pytest.importorskip("torch")

from wpack import errors
from wpack._device import resolve


class Cuda:
    """As much of ``torch.cuda`` as the rule asks."""

    def __init__(self, count, current=None):
        self.count, self.current = count, current

    def device_count(self):
        return self.count

    def is_initialized(self):
        return self.current is not None

    def current_device(self):
        assert self.current is not None, "asking for the current device would create a context on index 0"
        return self.current


def rule(device, count, current=None, **environ):
    return str(resolve(device, environ=environ, backend=Cuda(count, current)))


@pytest.mark.parametrize("device", ["cpu", "meta", "cuda:3", "mps", "xpu:1", torch.device("cuda", 2)])
def test_a_named_device_passes_through(device):
    assert str(resolve(device, environ={}, backend=Cuda(0))) == str(torch.device(device))


def test_none_is_the_cpu():
    assert resolve(None).type == "cpu"


def test_the_device_the_program_has_set():
    assert rule("cuda", 4, current=2, LOCAL_RANK="1", RANK="1") == "cuda:2"
    assert rule("cuda", 4, current=2) == "cuda:2"


def test_the_only_visible_device():
    assert rule("cuda", 1, LOCAL_RANK="3", RANK="3") == "cuda:0"
    assert rule("cuda", 1, current=0) == "cuda:0"


@pytest.mark.parametrize("local", range(4))
def test_local_rank_where_nothing_was_set(local):
    assert rule("cuda", 4, LOCAL_RANK=str(local), RANK="7") == f"cuda:{local}"


def test_local_rank_over_the_default_index():
    # Some library has initialised CUDA; nobody has chosen a device.
    assert rule("cuda", 4, current=0, LOCAL_RANK="3", RANK="3") == "cuda:3"


@pytest.mark.parametrize("local", ["4", "-1", "one", ""])
def test_local_rank_is_checked(local):
    with pytest.raises(errors.DeviceOutOfRangeError, match="LOCAL_RANK"):
        rule("cuda", 4, LOCAL_RANK=local, RANK="0")


def test_several_devices_and_no_word():
    with pytest.raises(errors.DeviceAmbiguousError, match="4 cuda devices") as caught:
        rule("cuda", 4)
    assert "set_device" in caught.value.hint
    with pytest.raises(errors.DeviceAmbiguousError):
        rule("cuda", 4, RANK="1")
    with pytest.raises(errors.DeviceAmbiguousError):
        rule("cuda", 4, current=0, RANK="1")


def test_no_device():
    with pytest.raises(errors.NoDeviceError):
        rule("cuda", 0)


def test_a_program_of_one_process_that_uses_the_default_device():
    assert rule("cuda", 4, current=0) == "cuda:0"


@pytest.mark.parametrize("kind", ["xpu", "cuda", "hpu"])
def test_other_accelerators_follow_the_same_rule(kind):
    assert rule(kind, 2, LOCAL_RANK="1") == f"{kind}:1"


def test_the_name_that_a_plugin_gave_its_device(run):
    """torch_npu makes ``"npu"`` a device; without it torch knows none of that name and says so."""
    code = """
    import json, torch
    from test_device import rule
    try:
        rule("npu", 2)
        refused = None
    except RuntimeError as error:
        refused = str(error)
    torch.utils.rename_privateuse1_backend("npu")
    print(json.dumps([refused, rule("npu", 2, LOCAL_RANK="1"), rule("npu:0", 2, LOCAL_RANK="1")]))
    """
    found = run(code, env={**os.environ, "PYTHONPATH": str(pathlib.Path(__file__).parent)})
    assert "npu" in found[0] and found[1:] == ["npu:1", "npu:0"]
