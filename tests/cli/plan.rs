//! `wpack plan`.

use crate::support::{Desk, transcript};

#[test]
fn what_a_conversion_would_give() {
    let desk = Desk::with_model();
    transcript!(desk, "plan model.safetensors --ranks 4 --layout zero3", @"
    exit 0
    --- stdout
    a pack of 384 KiB (393,216 B)
      layout  zero3 over 4 ranks, mesh dp=4
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
      0  model      0-3           2     544 B   65,536
      1  model      0             3  1.01 KiB  131,072
      2  model      1             3  1.01 KiB  196,608
      3  model      2             3  1.01 KiB  262,144
      4  model      3             3  1.01 KiB  327,680

    Bytes by who holds them
      every rank                   544 B
      some ranks                     0 B
      one rank alone  4.03 KiB (4,128 B)

    What a rank reads, and holds on its device
      rank      extents     bytes  of them shared
      0-3 each        2  1.54 KiB           544 B

    Host memory of a node
      ranks  this pack, mapped  private copies
          1           1.54 KiB           312 B
          2           2.55 KiB           624 B
          4           4.56 KiB        1.22 KiB
      mapped pages are shared and can be dropped; private copies cannot

    Sources
      file               bytes
      model.safetensors    664
    ");
    assert_eq!(desk.names(), ["model.safetensors"]);
}

#[test]
fn tensors_and_overrides() {
    let desk = Desk::with_model();
    transcript!(
        desk,
        "plan model.safetensors --ranks 2 --layout fsdp2 --replicate embed.* --dtype fp16 --tensors *weight",
        @"
    exit 0
    --- stdout
    a pack of 256 KiB (262,144 B)
      layout  fsdp2 over 2 ranks, mesh fsdp=2
      file    extents aligned to 64 KiB

    Components
      name   from         layout  tensors          parameters  bytes  dtypes
      model  safetensors  fsdp2         5  53 + 85 in buffers  300 B  F16 4, I64 1
      model: cast to F16

    Placements
      component  tensors  bytes  placement              because
      model            1  160 B  Replicate              fsdp2: --replicate embed.*
      model            2  106 B  fsdp: Shard(0, chunk)  fsdp2: parameter
      model            1    2 B  Replicate              fsdp2: no dimension
      model            1   32 B  Replicate              fsdp2: I64 is not floating point

    Extents
      #  component  held by  slices     bytes  at byte
      0  model      0,1           3  1.03 KiB   65,536
      1  model      0             2     518 B  131,072
      2  model      1             2     516 B  196,608

    Bytes by who holds them
      every rank      1.03 KiB (1,056 B)
      some ranks                     0 B
      one rank alone  1.01 KiB (1,034 B)

    What a rank reads, and holds on its device
      rank  extents     bytes  of them shared
      0           2  1.54 KiB        1.03 KiB
      1           2  1.54 KiB        1.03 KiB

    Host memory of a node
      ranks  this pack, mapped  private copies
          1           1.54 KiB           300 B
          2           2.04 KiB           600 B
      mapped pages are shared and can be dropped; private copies cannot

    Sources
      file               bytes
      model.safetensors    664

    Tensors
      component  name             dtype           shape    bytes  role       rule
      model      embed.weight     F16 (was BF16)  [10, 8]    160  buffer        0
      model      blocks.0.weight  F16 (was BF16)  [8, 6]      96  parameter     1
    "
    );
}

#[test]
fn the_plan_is_what_convert_writes() {
    let desk = Desk::with_model();
    let plan = desk.json("plan --json model.safetensors --ranks 3 --layout zero3");
    desk.done("convert model.safetensors -o m.wpack --ranks 3 --layout zero3");
    let pack = desk.json("inspect --json m.wpack");
    for field in [
        "bytes",
        "extent_align",
        "extents",
        "sharing",
        "rules",
        "mesh",
        "layout",
    ] {
        assert_eq!(plan[field], pack[field], "{field}");
    }
}
