//! `wpack convert`.

use crate::support::{Desk, transcript};

#[test]
fn zero3_over_four_ranks() {
    let desk = Desk::with_model();
    transcript!(desk, "convert model.safetensors -o m.wpack --ranks 4 --layout zero3", @"
    exit 0
    --- stderr
    wrote m.wpack: 384 KiB (393,216 B) in [time]
      digest ba6d48fbc6f59b39114b7581f9ca7818b89dc33fac0ea1baa5c00f2b97a372bf
    ");
    assert_eq!(desk.names(), ["m.wpack", "model.safetensors"]);
}

#[test]
fn quiet_says_nothing() {
    let desk = Desk::with_model();
    transcript!(desk, "convert -q model.safetensors -o m.wpack", @"exit 0");
}

#[test]
fn json() {
    let desk = Desk::with_model();
    transcript!(desk, "convert --json model.safetensors -o m.wpack --ranks 2 --layout fsdp2", @r#"
    exit 0
    --- stdout
    {
      "schema": 1,
      "command": "convert",
      "output": {
        "path": "m.wpack",
        "bytes": 262144,
        "digest": "b6beb8c85be6368d3f6554e5d643f9983f777fb7cbe70f49310c74ceb4801f51",
        "tensors": 5,
        "ranks": 2,
        "layout": "fsdp2",
        "seconds": [time]
      },
      "warnings": [],
      "skipped": []
    }
    "#);
}

#[test]
fn a_dry_run_writes_nothing() {
    let desk = Desk::with_model();
    transcript!(desk, "convert -n model.safetensors --ranks 2 --layout zero3", @"
    exit 0
    --- stdout
    a pack of 256 KiB (262,144 B)
      layout  zero3 over 2 ranks, mesh dp=2
      file    extents aligned to 64 KiB

    Components
      name   from         layout  tensors          parameters  bytes  dtypes
      model  safetensors  zero3         5  133 + 5 in buffers  312 B  BF16 2, I64 1, F32 2

    Placements
      component  tensors  bytes  placement              because
      model            3  276 B  dp: FlatShard(fill 0)  zero3: parameter
      model            1    4 B  Replicate              zero3: no dimension
      model            1   32 B  Replicate              zero3: I64 is not floating point

    Extents
      #  component  held by  slices     bytes  at byte
      0  model      0,1           2     544 B   65,536
      1  model      0             3  1.01 KiB  131,072
      2  model      1             3  1.01 KiB  196,608

    Bytes by who holds them
      every rank                   544 B
      some ranks                     0 B
      one rank alone  2.02 KiB (2,072 B)

    What a rank reads, and holds on its device
      rank      extents     bytes  of them shared
      0-1 each        2  1.54 KiB           544 B

    Host memory of a node
      ranks  this pack, mapped  private copies
          1           1.54 KiB           312 B
          2           2.55 KiB           624 B
      mapped pages are shared and can be dropped; private copies cannot

    Sources
      file               bytes
      model.safetensors    664
    ");
    assert_eq!(desk.names(), ["model.safetensors"]);
}

#[test]
fn every_way_to_change_names_and_values() {
    let desk = Desk::with_model();
    transcript!(
        desk,
        "convert model.safetensors -o m.wpack --dtype fp32 --exclude positions --strip-prefix blocks. --add-prefix net. --rename ^net\\.0\\.=net.first. --hash-sources --align 4K",
        @"
        exit 0
        --- stderr
        wrote m.wpack: 12 KiB (12,288 B) in [time]
          digest d5c567351e22dc3c867d97e49ac7c606811f26501327ef03c3b02a935965ecdc
        "
    );
    transcript!(desk, "inspect m.wpack --tensors", @r"
    exit 0
    --- stdout
    m.wpack: wpack format 1, 12 KiB (12,288 B)
      digest  d5c567351e22dc3c867d97e49ac7c606811f26501327ef03c3b02a935965ecdc
      layout  replicate, for any number of ranks
      file    8 KiB of header and index, extents aligned to 4 KiB
      plan    10 lines, --plan prints them

    Components
      name   layout     tensors          parameters  bytes  dtypes
      model  replicate        4  133 + 1 in buffers  536 B  F32
      model: exclude positions
      model: strip prefix blocks.
      model: add prefix net.
      model: rename ^net\.0\.=net.first.
      model: cast to F32

    Extents
      #  component  held by  slices     bytes  at byte
      0  model      all           4  1.50 KiB    8,192

    Bytes by who holds them
      every rank  1.50 KiB (1,540 B)

    Host memory of a node
      ranks  this pack, mapped  private copies
          1           1.50 KiB           536 B
          2           1.50 KiB        1.05 KiB
          4           1.50 KiB        2.09 KiB
          8           1.50 KiB        4.19 KiB
      mapped pages are shared and can be dropped; private copies cannot

    Placements
      component  tensors  bytes  placement  because
      model            3  532 B  Replicate  replicate: parameter
      model            1    4 B  Replicate  replicate: no dimension

    Sources
      file               bytes  sha256
      model.safetensors    664  2c4b9b21c19f8253aa93d021f4a63342807ef0678f398340521600326f2ef1b7

    Tensors
      component  name              dtype  shape    bytes  role       rule
      model      net.embed.weight  F32    [10, 8]    320  parameter     0
      model      net.first.weight  F32    [8, 6]     192  parameter     0
      model      net.first.bias    F32    [5]         20  parameter     0
      model      net.scale         F32    []           4  buffer        1
    ");
}

#[test]
fn two_components_with_layouts_of_their_own() {
    let desk = Desk::with_model();
    desk.safetensors("vae.safetensors", &[("conv.weight", "F32", &[4, 2])]);
    transcript!(
        desk,
        "convert dit=model.safetensors vae=vae.safetensors -o m.wpack --ranks 2 --layout zero3 --layout vae=replicate --dtype vae=bf16",
        @"
        exit 0
        --- stderr
        wrote m.wpack: 320 KiB (327,680 B) in [time]
          digest bc0d0594db36e232147c1883b55b1cf6d892290f29de9555d4d440963eafb981
        "
    );
    transcript!(desk, "inspect m.wpack", @"
    exit 0
    --- stdout
    m.wpack: wpack format 1, 320 KiB (327,680 B)
      digest  bc0d0594db36e232147c1883b55b1cf6d892290f29de9555d4d440963eafb981
      layout  zero3 over 2 ranks, mesh dp=2
      file    64 KiB of header and index, extents aligned to 64 KiB
      plan    8 lines, --plan prints them

    Components
      name  layout     tensors          parameters  bytes  dtypes
      dit   zero3            5  133 + 5 in buffers  312 B  BF16 2, I64 1, F32 2
      vae   replicate        1                   8   16 B  BF16
      vae: cast to BF16

    Extents
      #  component  held by  slices     bytes  at byte
      0  dit        0,1           2     544 B   65,536
      1  dit        0             3  1.01 KiB  131,072
      2  dit        1             3  1.01 KiB  196,608
      3  vae        all           1      16 B  262,144

    Bytes by who holds them
      every rank                   560 B
      some ranks                     0 B
      one rank alone  2.02 KiB (2,072 B)

    What a rank reads, and holds on its device
      rank      extents     bytes  of them shared
      0-1 each        3  1.56 KiB           560 B

    Host memory of a node
      ranks  this pack, mapped  private copies
          1           1.56 KiB           328 B
          2           2.57 KiB           656 B
      mapped pages are shared and can be dropped; private copies cannot

    Placements
      component  tensors  bytes  placement              because
      dit              3  276 B  dp: FlatShard(fill 0)  zero3: parameter
      dit              1    4 B  Replicate              zero3: no dimension
      dit              1   32 B  Replicate              zero3: I64 is not floating point
      vae              1   16 B  Replicate              replicate: parameter

    Sources
      file               bytes
      model.safetensors    664
      vae.safetensors      112
    ");
}

#[test]
fn threads_do_not_change_a_byte() {
    let desk = Desk::with_model();
    for threads in ["1", "3"] {
        desk.done(&format!(
            "convert model.safetensors -o {threads}.wpack --ranks 3 --layout fsdp2 --threads {threads}"
        ));
    }
    assert!(desk.read("1.wpack") == desk.read("3.wpack"));
}

#[test]
fn ranks_that_change_nothing_are_mentioned() {
    let desk = Desk::with_model();
    transcript!(desk, "convert model.safetensors -o m.wpack --ranks 4", @"
    exit 0
    --- stderr
    warning: layout `replicate` cuts nothing: the pack fits any number of ranks, --ranks and --mesh change nothing
    wrote m.wpack: 128 KiB (131,072 B) in [time]
      digest f4b541d0de346942ef124d7139cc74f899446a851fd9d4de716250942e34e973
    ");
}

#[test]
fn a_file_in_the_way_stays() {
    let desk = Desk::with_model();
    desk.write("m.wpack", b"precious");
    transcript!(desk, "convert model.safetensors -o m.wpack", @"
    exit 2
    --- stderr
    error: m.wpack exists already
    hint: add --overwrite to replace it, or name another file
    ");
    assert_eq!(desk.read("m.wpack"), b"precious");
    desk.done("convert model.safetensors -o m.wpack --overwrite");
    desk.done("verify m.wpack");
}

#[test]
fn a_target_that_is_a_source_stays() {
    let desk = Desk::with_model();
    transcript!(desk, "convert model.safetensors -o model.safetensors --overwrite", @"
    exit 2
    --- stderr
    error: model.safetensors is a source of this conversion
    hint: name another file with -o
    ");
    transcript!(desk, "convert model.safetensors -o .", @"
    exit 2
    --- stderr
    error: . is no regular file and is not replaced
    hint: name another file with -o
    ");
    transcript!(desk, "convert model.safetensors -o no/such/folder/m.wpack", @"
    exit 2
    --- stderr
    error: open folder no/such/folder
      because: No such file or directory (os error 2)
    hint: check the path; a relative one starts at the working directory
    ");
}

#[test]
fn requests_that_contradict_themselves() {
    let desk = Desk::with_model();
    transcript!(desk, "convert model.safetensors", @"
    exit 2
    --- stderr
    error: the following required arguments were not provided:
      --output <PACK>

    Usage: wpack convert --output <PACK> <CHECKPOINT>...

    For more information, try '--help'.
    ");
    transcript!(desk, "convert model.safetensors -o m.wpack --layout zero9", @"
    exit 2
    --- stderr
    error: unknown layout `zero9`
    hint: layouts: replicate, usp, zero1, zero2, zero3, fsdp1, fsdp2, hsdp, tp, ep, pp, rules; joined with `+` where several act
    ");
    transcript!(desk, "convert model.safetensors -o m.wpack --layout zero3", @"
    exit 2
    --- stderr
    error: layout `zero3` cuts tensors over ranks, and their number is not given
    hint: add --ranks N (or --mesh dp=N); --layout replicate needs neither
    ");
    transcript!(desk, "convert model.safetensors -o m.wpack --layout zero3 --ranks 0", @"
    exit 2
    --- stderr
    error: invalid value '0' for '--ranks <N>': 0 is not in 1..=4294967295

    For more information, try '--help'.
    ");
    transcript!(desk, "convert model.safetensors -o m.wpack --layout zero3 --mesh dp", @"
    exit 2
    --- stderr
    error: mesh `dp`: `dp` is not name=size
    hint: write axes as name=size, the last varies fastest: --mesh dp=2,fsdp=4
    ");
    transcript!(desk, "convert model.safetensors -o m.wpack --layout zero3 --mesh dp=2 --ranks 3", @"
    exit 2
    --- stderr
    error: mesh `dp=2` has 2 ranks, but 3 were asked for
    hint: leave out --ranks, or give --ranks 2
    ");
    transcript!(desk, "convert model.safetensors -o m.wpack --align 5000", @"
    exit 2
    --- stderr
    error: extents cannot be aligned to 5000 bytes
    hint: give a power of two from 4096 to 1073741824: --align 2097152
    ");
    transcript!(desk, "convert model.safetensors -o m.wpack --align many", @"
    exit 2
    --- stderr
    error: invalid value 'many' for '--align <BYTES>': expected bytes, such as 4096, 64K or 2M

    For more information, try '--help'.
    ");
    transcript!(desk, "convert model.safetensors -o m.wpack --threads 0", @"
    exit 2
    --- stderr
    error: invalid value '0' for '--threads <N>': at least 1 is needed

    For more information, try '--help'.
    ");
    transcript!(desk, "convert model.safetensors -o m.wpack --dtype int7", @"
    exit 2
    --- stderr
    error: no element type to cast to is called `int7`
    hint: types: bf16, fp16, fp32, fp64, fp8_e4m3fn, fp8_e5m2, fp8_e4m3fnuz, fp8_e5m2fnuz, fp8_e8m0fnu, bfloat16, float16, float32, float64, float8_e4m3fn, float8_e5m2, float8_e4m3fnuz, float8_e5m2fnuz
    ");
    transcript!(desk, "convert model.safetensors -o m.wpack --component vae", @"
    exit 2
    --- stderr
    error: no component `vae` in the checkpoint
    hint: components: model
    ");
    transcript!(desk, "convert model.safetensors -o m.wpack --layout vae=replicate", @"
    exit 2
    --- stderr
    error: no component `vae` to lay out
    hint: components: model
    ");
    transcript!(desk, "convert model.safetensors -o m.wpack --include nothing.*", @"
    exit 2
    --- stderr
    error: --include `nothing.*` matches no tensor of `model`
    hint: names there are: embed.weight, blocks.0.weight, blocks.0.bias, scale, positions
    ");
    transcript!(desk, "convert model.safetensors -o m.wpack --include [", @"
    exit 2
    --- stderr
    error: --include `[`: unclosed character class; missing ']'
    hint: write a glob of names in the checkpoint: --include 'blocks.*'
    ");
    transcript!(desk, "convert model.safetensors -o m.wpack --exclude *", @"
    exit 2
    --- stderr
    error: the filters leave no tensor of component `model`
    hint: widen --include, or leave the component out: name the others with --component (without `model`)
    ");
    transcript!(desk, "convert model.safetensors -o m.wpack --rename (=x", @r"
    exit 2
    --- stderr
    error: --rename `(`: unclosed group
    hint: write a regular expression and a replacement: --rename '^model\.=net.'
    ");
    transcript!(desk, "convert model.safetensors -o m.wpack --rename x", @"
    exit 2
    --- stderr
    error: invalid value 'x' for '--rename <FROM=TO>': expected FROM=TO

    For more information, try '--help'.
    ");
    transcript!(desk, "convert model.safetensors -o m.wpack --rename .*=same", @"
    exit 1
    --- stderr
    error: component `model`: `embed.weight` and `blocks.0.weight` would both be named `same`
    hint: leave one out (--exclude 'blocks.0.weight'), or rename them apart (--rename)
    ");
    transcript!(desk, "convert model.safetensors -o m.wpack --layout zero3 --ranks 2 --shard scale", @"
    exit 1
    --- stderr
    error: component `model`, tensor `scale` [] of F32: `dp: FlatShard(fill 0)` cannot cut it: it has no dimension
    hint: leave it whole: narrow --shard, or give --replicate 'scale'
    ");
    transcript!(
        desk,
        "convert model.safetensors -o m.wpack --layout zero3 --ranks 2 --replicate blocks.* --shard *.bias",
        @"
    exit 2
    --- stderr
    error: component `model`, tensor `blocks.0.bias`: both --replicate `blocks.*` and --shard `*.bias` match it
    hint: narrow one of the patterns so that `blocks.0.bias` falls under one
    "
    );
    assert_eq!(desk.names(), ["model.safetensors"]);
}

#[test]
fn a_failure_as_json() {
    let desk = Desk::with_model();
    transcript!(desk, "convert --json missing.safetensors -o m.wpack", @r#"
    exit 1
    --- stdout
    {
      "schema": 1,
      "command": "convert",
      "error": {
        "code": "io",
        "message": "missing.safetensors: No such file or directory (os error 2)",
        "hint": "check the path; a relative one starts at the working directory"
      }
    }
    "#);
    transcript!(desk, "convert --json model.safetensors -o m.wpack --layout zero3", @r#"
    exit 2
    --- stdout
    {
      "schema": 1,
      "command": "convert",
      "error": {
        "code": "ranks-missing",
        "message": "layout `zero3` cuts tensors over ranks, and their number is not given",
        "hint": "add --ranks N (or --mesh dp=N); --layout replicate needs neither"
      }
    }
    "#);
}
