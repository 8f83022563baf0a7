"""DiffSynth-Studio's own loaders take packs: same values, no copies, the right files and the right device.

Models are DiffSynth's classes at reduced width, checkpoints have the true tensor names.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

pytest.importorskip("torch")
pytest.importorskip("diffsynth")
REPORTS = Path(__file__).resolve().parents[2] / "tests" / "reports"
sys.path.insert(0, str(REPORTS))

import boundary  # noqa: E402
import small_models  # noqa: E402
import torch  # noqa: E402
from diffsynth.core import ModelConfig  # noqa: E402
from diffsynth.core.loader import file as loader_file  # noqa: E402
from diffsynth.core.vram import disk_map  # noqa: E402
from diffsynth.pipelines.qwen_image import QwenImagePipeline  # noqa: E402
from diffsynth.pipelines.wan_video import WanVideoPipeline  # noqa: E402

import wpack  # noqa: E402
from wpack._wpack import run_command  # noqa: E402
from wpack.errors import DeviceAmbiguousError  # noqa: E402
from wpack.integrations import diffsynth as adapter  # noqa: E402
from wpack.integrations._packs import PackReferenceError, RegistryError  # noqa: E402
from wpack.integrations._pages import MappedPacks, unwritten  # noqa: E402
from wpack.integrations.diffsynth import _known, _redirect  # noqa: E402

WAN = ("dit", "text", "vae")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Checkpoints as published (fp32 and .pth among them), and packs of them in bf16."""
    folder = tmp_path_factory.mktemp("models")
    small_models.make(folder, "tiny", list(small_models.PUBLISHED))
    small_models.register(folder)
    ti2v = folder / "Wan-AI/Wan2.2-TI2V-5B"
    sources = {"dit": ti2v / "diffusion_pytorch_model*.safetensors", "vae": ti2v / "Wan2.1_VAE.pth"}
    sources["text"] = ti2v / "models_t5_umt5-xxl-enc-bf16.pth"
    wpack.convert({name: str(path) for name, path in sources.items()}, folder / "wan.wpack", dtype="bf16", progress=False)
    wpack.convert(folder / "Qwen/Qwen-Image", folder / "qwen.wpack", dtype="bf16", progress=False)
    return folder


@pytest.fixture(autouse=True)
def environment(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No network, no packs but those of the test; everything as it was afterwards."""
    monkeypatch.setenv("DIFFSYNTH_SKIP_DOWNLOAD", "True")
    monkeypatch.setenv("DIFFSYNTH_MODEL_BASE_PATH", str(folder))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    for name in ("WPACK_PATH", "RANK", "LOCAL_RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    yield
    adapter.uninstall()
    _redirect.REGISTRY.__init__()  # type: ignore[misc]


def wan_files(folder: Path) -> list[Any]:
    ti2v = folder / "Wan-AI/Wan2.2-TI2V-5B"
    dit = sorted(str(path) for path in ti2v.glob("diffusion_pytorch_model*.safetensors"))
    return [dit, str(ti2v / "models_t5_umt5-xxl-enc-bf16.pth"), str(ti2v / "Wan2.1_VAE.pth")]


def wan(configs: list[ModelConfig], device: str = "cpu", **options: Any) -> WanVideoPipeline:
    return WanVideoPipeline.from_pretrained(device=device, model_configs=configs, tokenizer_config=None, **options)


def wan_by_id() -> list[ModelConfig]:
    files = ("diffusion_pytorch_model*.safetensors", "models_t5_umt5-xxl-enc-bf16.pth", "Wan2.1_VAE.pth")
    return [ModelConfig(model_id="Wan-AI/Wan2.2-TI2V-5B", origin_file_pattern=name) for name in files]


def equal(a: torch.nn.Module, b: torch.nn.Module) -> bool:
    a_state, b_state = a.state_dict(), b.state_dict()
    return list(a_state) == list(b_state) and all(
        a_state[name].dtype == b_state[name].dtype and torch.equal(a_state[name], b_state[name]) for name in a_state
    )


def mapped(model: torch.nn.Module) -> bool:
    packs = MappedPacks()
    return all(packs.origin(parameter) is not None and unwritten(parameter) for parameter in model.parameters())


class TestPaths:
    def test_references_give_the_same_model_without_a_copy(self, folder: Path) -> None:
        stock = wan([ModelConfig(path=path) for path in wan_files(folder)])
        adapter.install()
        packed = wan([ModelConfig(path=f"{folder}/wan.wpack#{name}") for name in WAN])
        assert equal(stock, packed)
        assert mapped(packed)

    def test_nothing_is_unpickled_cloned_cast_or_read_through_safetensors(self, folder: Path) -> None:
        counts = {"torch.load": 0, "safe_open": 0, "clone": 0}

        def counted(name: str, original: Any) -> Any:
            def call(*args: Any, **options: Any) -> Any:
                counts[name] += 1
                return original(*args, **options)

            return call

        patches = [
            mock.patch.object(torch, "load", counted("torch.load", torch.load)),
            mock.patch.object(torch.Tensor, "clone", counted("clone", torch.Tensor.clone)),
            mock.patch.object(disk_map, "safe_open", counted("safe_open", disk_map.safe_open)),
            mock.patch.object(loader_file, "safe_open", counted("safe_open", loader_file.safe_open)),
        ]
        for patch in patches:
            patch.start()
        try:
            wan([ModelConfig(path=path) for path in wan_files(folder)])
            stock = dict(counts)
            adapter.install()
            wan([ModelConfig(path=f"{folder}/wan.wpack#{name}") for name in WAN])
            packed = {name: counts[name] - stock[name] for name in counts}
        finally:
            adapter.uninstall()
            for patch in patches:
                patch.stop()
        assert stock["torch.load"] == 4, "each .pth is read twice by DiffSynth itself"
        assert stock["safe_open"] == 6
        assert packed == {"torch.load": 0, "safe_open": 0, "clone": 0}

    def test_recognising_a_model_reads_no_tensor(self, folder: Path) -> None:
        adapter.install()
        with mock.patch.object(wpack.RankShard, "get_tensor", side_effect=AssertionError("a tensor was read")):
            for name, path in zip(WAN, wan_files(folder), strict=True):
                reference = f"{folder}/wan.wpack#{name}"
                assert loader_file.hash_model_file(reference) == loader_file.hash_model_file(path)

    def test_load_state_dict_takes_a_reference(self, folder: Path) -> None:
        stock = loader_file.load_state_dict(wan_files(folder)[1])
        adapter.install()
        packed = loader_file.load_state_dict(f"{folder}/wan.wpack#text")
        assert stock.keys() == packed.keys()
        assert all(torch.equal(stock[name], packed[name]) for name in stock)

    def test_a_pack_of_several_components_needs_a_name(self, folder: Path) -> None:
        adapter.install()
        with pytest.raises(PackReferenceError, match="3 components"):
            wan([ModelConfig(path=f"{folder}/wan.wpack")])
        with pytest.raises(PackReferenceError, match="no component `clip`"):
            wan([ModelConfig(path=f"{folder}/wan.wpack#clip")])

    def test_another_type_is_cast_and_said(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        adapter.install()
        pipe = wan([ModelConfig(path=f"{folder}/wan.wpack#vae")], torch_dtype=torch.float32)
        assert all(parameter.dtype == torch.float32 for parameter in pipe.parameters())
        assert capsys.readouterr().err.count("private copy") == 1

    def test_writes_stay_in_the_process(self, folder: Path) -> None:
        adapter.install()
        before = (folder / "wan.wpack").read_bytes()
        configs = [ModelConfig(path=f"{folder}/wan.wpack#dit")]
        first = wan(configs)
        with torch.no_grad():
            for parameter in first.parameters():
                parameter.add_(1)
        second = wan(configs)
        assert not torch.equal(next(first.parameters()), next(second.parameters()))
        assert (folder / "wan.wpack").read_bytes() == before

    def test_disk_offload_loads_from_the_pack(self, folder: Path) -> None:
        device = {"computation_device": "cpu", "preparing_device": "cpu"}
        dtype = {"computation_dtype": torch.bfloat16, "preparing_dtype": torch.bfloat16}
        disk = {"offload_device": "disk", "offload_dtype": "disk", "onload_device": "disk", "onload_dtype": "disk"}
        options = {"clear_parameters": False, **device, **dtype, **disk}

        def logits(path: Any) -> torch.Tensor:
            pipe = wan([ModelConfig(path=path, **options)])
            ids = torch.arange(16).reshape(1, 16)
            # DiffSynth empties the device's cache, which torch.cpu has no function for.
            with mock.patch.object(torch.cpu, "empty_cache", create=True), torch.no_grad():
                pipe.load_models_to_device(["text_encoder"])
                return pipe.text_encoder(ids, torch.ones_like(ids))

        stock = logits(wan_files(folder)[1])
        adapter.install()
        assert torch.equal(stock, logits(f"{folder}/wan.wpack#text"))

    def test_fp8_is_shared_where_the_pack_holds_it(self, folder: Path, tmp_path: Path) -> None:
        """As ``--fp8_models`` asks for: kept in eight bits, computed in sixteen."""
        options: dict[str, Any] = {"computation_device": "cpu", "computation_dtype": torch.bfloat16}
        for place in ("offload", "onload", "preparing"):
            options |= {f"{place}_device": "cpu", f"{place}_dtype": torch.float8_e4m3fn}
        text = wan_files(folder)[1]
        wpack.convert({"text": text}, tmp_path / "text.wpack", dtype=torch.float8_e4m3fn, progress=False)

        def logits(path: Any) -> tuple[torch.Tensor, bool]:
            pipe = wan([ModelConfig(path=path, **options)])
            ids = torch.arange(16).reshape(1, 16)
            shared = mapped(pipe.text_encoder)
            with mock.patch.object(torch.cpu, "empty_cache", create=True), torch.no_grad():
                pipe.load_models_to_device(["text_encoder"])
                return pipe.text_encoder(ids, torch.ones_like(ids)), shared

        stock, _ = logits(text)
        adapter.install()
        ours, shared = logits(str(tmp_path / "text.wpack"))
        assert torch.equal(stock, ours) and shared


class TestFilesThatAPackStandsFor:
    def test_paths(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        adapter.install([folder / "wan.wpack"])
        configs = [ModelConfig(path=path) for path in wan_files(folder)]
        assert mapped(wan(configs))
        assert [config.path for config in configs] == [f"{folder}/wan.wpack#{name}" for name in WAN]
        assert capsys.readouterr().err.count(f"from {folder}/wan.wpack#") == 3

    def test_model_and_pattern_and_the_redirect_of_common_files(self, folder: Path) -> None:
        adapter.install([folder / "wan.wpack"])
        assert mapped(wan(wan_by_id()))

    def test_patterns_with_a_folder(self, folder: Path) -> None:
        adapter.install([folder / "qwen.wpack"])
        files = ("transformer/diffusion_pytorch_model*.safetensors", "vae/diffusion_pytorch_model.safetensors")
        configs = [ModelConfig(model_id="Qwen/Qwen-Image", origin_file_pattern=file) for file in files]
        pipe = QwenImagePipeline.from_pretrained(device="cpu", model_configs=configs, tokenizer_config=None)
        assert mapped(pipe) and pipe.dit is not None and pipe.vae is not None

    def test_files_that_are_gone_by_the_model_they_are_of(self, folder: Path, tmp_path: Path) -> None:
        with mock.patch.dict(os.environ, DIFFSYNTH_MODEL_BASE_PATH=str(tmp_path), DIFFSYNTH_SKIP_DOWNLOAD="False"):
            adapter.install({"Wan-AI/Wan2.2-TI2V-5B": folder / "wan.wpack"})
            adapter.install({"Qwen/Qwen-Image": folder / "qwen.wpack"})
            no_network = AssertionError("it would be downloaded")
            with mock.patch.object(ModelConfig, "download", side_effect=no_network):
                assert mapped(wan(wan_by_id()))
                for name in ("transformer", "vae"):
                    pattern = f"{name}/diffusion_pytorch_model*.safetensors"
                    config = ModelConfig(model_id="Qwen/Qwen-Image", origin_file_pattern=pattern)
                    config.download_if_necessary()
                    assert config.path == f"{folder}/qwen.wpack#{name}"
                with pytest.raises(AssertionError):
                    ModelConfig(model_id="Qwen/Qwen-Image", origin_file_pattern="tokenizer/").download_if_necessary()
                with pytest.raises(AssertionError):
                    ModelConfig(model_id="Wan-AI/Other", origin_file_pattern="diffusion*").download_if_necessary()

    def test_other_bytes_of_the_same_name_are_not_taken(self, folder: Path, tmp_path: Path) -> None:
        adapter.install([folder / "wan.wpack"])
        other = tmp_path / "Wan2.1_VAE.pth"
        other.write_bytes(Path(wan_files(folder)[2]).read_bytes() + b"\0")
        config = ModelConfig(path=str(other))
        config.download_if_necessary()
        assert config.path == str(other)

    def test_digests_when_asked(self, folder: Path, tmp_path: Path) -> None:
        source = tmp_path / "Wan2.1_VAE.pth"
        source.write_bytes(Path(wan_files(folder)[2]).read_bytes())
        wpack.convert(source, tmp_path / "vae.wpack", hash_sources=True, progress=False)
        adapter.install([tmp_path / "vae.wpack"], check_hash=True)
        config = ModelConfig(path=str(source))
        config.download_if_necessary()
        assert str(config.path).startswith(f"{tmp_path}/vae.wpack#")
        data = bytearray(source.read_bytes())
        data[-1] ^= 1
        source.write_bytes(data)
        config = ModelConfig(path=str(source))
        config.download_if_necessary()
        assert config.path == str(source)
        adapter.install([folder / "wan.wpack"])
        with pytest.raises(RegistryError, match="digests"):
            ModelConfig(path=wan_files(folder)[1]).download_if_necessary()

    def test_the_environment_and_the_users_list(self, folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        adapter.install()
        path = wan_files(folder)[2]

        def taken() -> str:
            config = ModelConfig(path=path)
            config.download_if_necessary()
            return str(config.path)

        assert taken() == path
        monkeypatch.setenv("WPACK_PATH", f"{tmp_path}/none{os.pathsep}{folder}")
        assert taken() == f"{folder}/wan.wpack#vae"
        monkeypatch.delenv("WPACK_PATH")
        command = ["wpack", "register", "--quiet", str(folder / "wan.wpack"), "--model-id", "Wan-AI/Wan2.2-TI2V-5B"]
        assert run_command(command) == 0
        assert taken() == f"{folder}/wan.wpack#vae"
        listed = tmp_path / "wpack/packs.json"
        listed.write_text(json.dumps({"packs": [{"path": str(folder / name)} for name in ("gone.wpack", "wan.wpack")]}))
        assert taken() == f"{folder}/wan.wpack#vae"
        for damaged in ("[]", "{", '{"packs": [1]}', '{"packs": ["wan.wpack"]}'):
            listed.write_text(damaged)
            with pytest.raises(RegistryError, match="packs.json"):
                taken()

    def test_two_packs_of_the_same_files_are_an_error(self, folder: Path, tmp_path: Path) -> None:
        copy = tmp_path / "copy.wpack"
        copy.write_bytes((folder / "wan.wpack").read_bytes())
        adapter.install([folder / "wan.wpack", copy])
        with pytest.raises(PackReferenceError, match="2 registered components"):
            ModelConfig(path=wan_files(folder)[2]).download_if_necessary()

    def test_a_pack_that_is_not_there(self, tmp_path: Path) -> None:
        with pytest.raises(RegistryError, match="no pack"):
            adapter.install([tmp_path / "none.wpack"])


class TestInstall:
    def test_uninstall_puts_everything_back(self) -> None:
        names = [(loader_file, "load_keys_dict"), (disk_map, "safe_open"), (disk_map.DiskMap, "__getitem__")]
        before = [getattr(owner, name) for owner, name in names]
        adapter.install()
        adapter.install()
        assert [getattr(owner, name) for owner, name in names] != before
        adapter.uninstall()
        assert [getattr(owner, name) for owner, name in names] == before
        assert not adapter.installed()

    def test_a_changed_function_is_refused_by_name(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def flush_files(self: Any) -> None:
            """Another one."""

        flush_files.__qualname__ = "DiskMap.flush_files"
        monkeypatch.setattr(disk_map.DiskMap, "flush_files", flush_files)
        original = loader_file.load_keys_dict
        with pytest.raises(adapter.IncompatibleError) as refused:
            adapter.install()
        assert "DiskMap.flush_files" in str(refused.value) and _known.version() in str(refused.value)
        assert "2.1.12" in str(refused.value)
        assert loader_file.load_keys_dict is original and not adapter.installed()

    def test_the_launcher_runs_a_script_as_itself(self, folder: Path, tmp_path: Path) -> None:
        script = tmp_path / "script.py"
        (tmp_path / "neighbour.py").write_text("word = 'found'\n")
        script.write_text(
            "import sys, neighbour\n"
            "from wpack.integrations import diffsynth\n"
            "print(__name__, sys.argv[1:], neighbour.word, diffsynth.installed())\n"
        )
        command = [sys.executable, "-m", "wpack.integrations.diffsynth", "--pack", str(folder / "wan.wpack")]
        done = subprocess.run([*command, str(script), "--pack", "x"], capture_output=True, text=True, check=True)
        assert done.stdout.splitlines()[-1] == "__main__ ['--pack', 'x'] found True"


class TestDevices:
    """Each of several processes asks for its own device; DiffSynth alone asks for the first."""

    def load(self, folder: Path, kind: str, local_rank: int | None, packed: bool) -> boundary.Devices:
        values = {} if local_rank is None else {"LOCAL_RANK": str(local_rank), "RANK": str(local_rank + 8)}
        with mock.patch.dict(os.environ, values), boundary.recorded(4, kind) as devices:
            if packed:
                adapter.install([folder / "wan.wpack"])
            wan([ModelConfig(path=path) for path in wan_files(folder)], device=kind)
            return devices

    @pytest.mark.parametrize("kind", ["cuda", "xpu"])
    def test_packs(self, folder: Path, kind: str) -> None:
        size = wpack.open(folder / "wan.wpack").shard(0, 1).explain().mapped_bytes
        for rank in range(4):
            devices = self.load(folder, kind, rank, packed=True)
            assert devices.indices() == {rank}
            assert devices.set == ([rank] if rank else [0])
            assert devices.bytes == {rank: size}
            adapter.uninstall()

    def test_safetensors_and_pth(self, folder: Path) -> None:
        for rank in range(4):
            with mock.patch.dict(os.environ, LOCAL_RANK=str(rank)), boundary.recorded(4) as devices:
                adapter.install()
                wan([ModelConfig(path=path) for path in wan_files(folder)], device="cuda")
            assert devices.by_library() == {"safetensors": {rank}, "torch": {rank}}
            adapter.uninstall()

    def test_stock_asks_for_the_first(self, folder: Path) -> None:
        for rank in range(4):
            assert self.load(folder, "cuda", rank, packed=False).indices() == {0}

    def test_a_device_that_the_program_set_is_kept(self, folder: Path) -> None:
        with mock.patch.dict(os.environ, LOCAL_RANK="1"), boundary.recorded(4) as devices:
            torch.cuda.set_device(2)
            adapter.install([folder / "wan.wpack"])
            wan([ModelConfig(path=path) for path in wan_files(folder)], device="cuda")
        assert devices.indices() == {2}

    def test_ambiguity_is_an_error(self, folder: Path) -> None:
        with pytest.raises(DeviceAmbiguousError, match="4 cuda devices"):
            self.load(folder, "cuda", None, packed=True)

    def test_an_index_is_taken_as_it_is(self, folder: Path) -> None:
        with boundary.recorded(4) as devices:
            adapter.install([folder / "wan.wpack"])
            wan([ModelConfig(path=path) for path in wan_files(folder)], device="cuda:3")
        assert devices.indices() == {3}
