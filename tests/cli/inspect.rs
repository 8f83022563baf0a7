//! `wpack inspect`.

use crate::support::{Desk, transcript};

fn desk_with_pack() -> Desk {
    let desk = Desk::with_model();
    desk.done("convert model.safetensors -o m.wpack --ranks 4 --layout zero3");
    desk
}

#[test]
fn a_pack() {
    let desk = desk_with_pack();
    transcript!(desk, "inspect m.wpack", @"
    exit 0
    --- stdout
    m.wpack: wpack format 1, 384 KiB (393,216 B)
      digest  ba6d48fbc6f59b39114b7581f9ca7818b89dc33fac0ea1baa5c00f2b97a372bf
      layout  zero3 over 4 ranks, mesh dp=4
      file    64 KiB of header and index, extents aligned to 64 KiB
      plan    2 lines, --plan prints them

    Components
      name   layout  tensors          parameters  bytes  dtypes
      model  zero3         5  133 + 5 in buffers  312 B  BF16 2, I64 1, F32 2

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

    Placements
      component  tensors  bytes  placement              because
      model            3  276 B  dp: FlatShard(fill 0)  zero3: parameter
      model            1    4 B  Replicate              zero3: no dimension
      model            1   32 B  Replicate              zero3: I64 is not floating point

    Sources
      file               bytes
      model.safetensors    664
    ");
}

#[test]
fn a_pack_for_any_number_of_ranks() {
    let desk = Desk::with_model();
    desk.done("convert model.safetensors -o m.wpack");
    transcript!(desk, "inspect m.wpack", @"
    exit 0
    --- stdout
    m.wpack: wpack format 1, 128 KiB (131,072 B)
      digest  f4b541d0de346942ef124d7139cc74f899446a851fd9d4de716250942e34e973
      layout  replicate, for any number of ranks
      file    64 KiB of header and index, extents aligned to 64 KiB
      plan    1 line, --plan prints them

    Components
      name   layout     tensors          parameters  bytes  dtypes
      model  replicate        5  133 + 5 in buffers  312 B  BF16 2, I64 1, F32 2

    Extents
      #  component  held by  slices     bytes  at byte
      0  model      all           5  2.03 KiB   65,536

    Bytes by who holds them
      every rank  2.03 KiB (2,080 B)

    Host memory of a node
      ranks  this pack, mapped  private copies
          1           2.03 KiB           312 B
          2           2.03 KiB           624 B
          4           2.03 KiB        1.22 KiB
          8           2.03 KiB        2.44 KiB
      mapped pages are shared and can be dropped; private copies cannot

    Placements
      component  tensors  bytes  placement  because
      model            3  276 B  Replicate  replicate: parameter
      model            1    4 B  Replicate  replicate: no dimension
      model            1   32 B  Replicate  replicate: I64 is not floating point

    Sources
      file               bytes
      model.safetensors    664
    ");
}

#[test]
fn one_rank() {
    let desk = desk_with_pack();
    transcript!(desk, "inspect m.wpack --rank 3", @"
    exit 0
    --- stdout
    m.wpack: wpack format 1, 384 KiB (393,216 B)
      digest  ba6d48fbc6f59b39114b7581f9ca7818b89dc33fac0ea1baa5c00f2b97a372bf
      layout  zero3 over 4 ranks, mesh dp=4
      file    64 KiB of header and index, extents aligned to 64 KiB
      plan    2 lines, --plan prints them

    Rank 3 at dp=3: 1.54 KiB (1,576 B) in 2 extents, 5 slices
      extents 0, 4
    ");
    transcript!(desk, "inspect m.wpack --rank 3 --tensors blocks.*", @"
    exit 0
    --- stdout
    m.wpack: wpack format 1, 384 KiB (393,216 B)
      digest  ba6d48fbc6f59b39114b7581f9ca7818b89dc33fac0ea1baa5c00f2b97a372bf
      layout  zero3 over 4 ranks, mesh dp=4
      file    64 KiB of header and index, extents aligned to 64 KiB
      plan    2 lines, --plan prints them

    Rank 3 at dp=3: 1.54 KiB (1,576 B) in 2 extents, 5 slices
      extents 0, 4

      component  name             dtype  local shape  content       extent  at byte  bytes
      model      blocks.0.weight  BF16   [12]         flat               4  328,192     24
      model      blocks.0.bias    F32    [2]          flat, 2 fill       4  328,704      8
    ");
    transcript!(desk, "inspect m.wpack --rank 4", @"
    exit 2
    --- stderr
    error: rank 4 is outside the mesh of 4 ranks
    hint: ranks are 0 to 3; reslice the pack to open it for another number of ranks
    ");
}

#[test]
fn tensors() {
    let desk = desk_with_pack();
    transcript!(desk, "inspect m.wpack --tensors *bias", @"
    exit 0
    --- stdout
    m.wpack: wpack format 1, 384 KiB (393,216 B)
      digest  ba6d48fbc6f59b39114b7581f9ca7818b89dc33fac0ea1baa5c00f2b97a372bf
      layout  zero3 over 4 ranks, mesh dp=4
      file    64 KiB of header and index, extents aligned to 64 KiB
      plan    2 lines, --plan prints them

    Components
      name   layout  tensors          parameters  bytes  dtypes
      model  zero3         5  133 + 5 in buffers  312 B  BF16 2, I64 1, F32 2

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

    Placements
      component  tensors  bytes  placement              because
      model            3  276 B  dp: FlatShard(fill 0)  zero3: parameter
      model            1    4 B  Replicate              zero3: no dimension
      model            1   32 B  Replicate              zero3: I64 is not floating point

    Sources
      file               bytes
      model.safetensors    664

    Tensors
      component  name           dtype  shape  bytes  role       rule
      model      blocks.0.bias  F32    [5]       20  parameter     0
    ");
    transcript!(desk, "inspect m.wpack --tensors [", @"
    exit 2
    --- stderr
    error: --tensors `[` is no glob
      because: error parsing glob '[': unclosed character class; missing ']'
    hint: `*` stands for any characters, `?` for one, `[ab]` for one of several, `{a,b}` for one of several texts
    ");
}

#[test]
fn json() {
    let desk = Desk::new();
    desk.safetensors("one.safetensors", &[("w", "F32", &[3])]);
    desk.done("convert one.safetensors -o m.wpack --ranks 2 --layout fsdp2");
    transcript!(desk, "inspect m.wpack --json --rank 0 --tensors", @r#"
    exit 0
    --- stdout
    {
      "schema": 1,
      "command": "inspect",
      "kind": "pack",
      "path": "m.wpack",
      "format": 1,
      "bytes": 196608,
      "index_bytes": 65536,
      "digest": "0d39f0489d944dad04c13ada4c129fa896ec73b6178d9c199ebf36ac8d6f4d8b",
      "extent_align": 65536,
      "mesh": [
        {
          "name": "fsdp",
          "size": 2
        }
      ],
      "ranks": 2,
      "layout": "fsdp2",
      "components": [
        {
          "name": "model",
          "layout": "fsdp2",
          "tensors": 1,
          "ties": 0,
          "elements": 3,
          "bytes": 12,
          "dtypes": [
            {
              "dtype": "F32",
              "tensors": 1,
              "bytes": 12
            }
          ],
          "parameters": 3,
          "transform": {
            "root": "",
            "include": [],
            "exclude": [],
            "strip_prefix": [],
            "add_prefix": "",
            "rename": [],
            "dtype": null
          },
          "metadata": {}
        }
      ],
      "extents": [
        {
          "index": 0,
          "component": "model",
          "owners": [
            {
              "first": 0,
              "count": 1,
              "step": 1
            }
          ],
          "offset": 65536,
          "bytes": 8,
          "slices": 1
        },
        {
          "index": 1,
          "component": "model",
          "owners": [
            {
              "first": 1,
              "count": 1,
              "step": 1
            }
          ],
          "offset": 131072,
          "bytes": 4,
          "slices": 1
        }
      ],
      "sharing": {
        "extent_bytes": 12,
        "every_rank_bytes": 0,
        "some_ranks_bytes": 0,
        "one_rank_bytes": 12,
        "ranks": [
          {
            "rank": 0,
            "bytes": 8,
            "shared_bytes": 0,
            "extents": [
              0
            ]
          },
          {
            "rank": 1,
            "bytes": 4,
            "shared_bytes": 0,
            "extents": [
              1
            ]
          }
        ],
        "memory": [
          {
            "ranks_per_node": 1,
            "mapped_bytes": 8,
            "private_copies_bytes": 12
          },
          {
            "ranks_per_node": 2,
            "mapped_bytes": 12,
            "private_copies_bytes": 24
          }
        ]
      },
      "rules": [
        {
          "component": "model",
          "placements": [
            "fsdp: Shard(0, chunk)"
          ],
          "reason": "fsdp2: parameter",
          "tensors": 1,
          "bytes": 12
        }
      ],
      "replicate": [],
      "shard": [],
      "plan_file": "mesh = \"fsdp=2\"\nlayout = \"fsdp2\"\n",
      "sources": [
        {
          "name": "one.safetensors",
          "bytes": 76
        }
      ],
      "files": [],
      "metadata": {},
      "rank": {
        "rank": 0,
        "coordinates": [
          {
            "name": "fsdp",
            "size": 0
          }
        ],
        "bytes": 8,
        "extents": [
          0
        ],
        "slice_count": 1,
        "slices": [
          {
            "component": "model",
            "names": [
              "w"
            ],
            "dtype": "F32",
            "shape": [
              2
            ],
            "content": "box",
            "kind": "value",
            "fill": 0,
            "extent": 0,
            "offset": 65536,
            "bytes": 8
          }
        ]
      }
    }
    "#);
}

#[test]
fn a_checkpoint() {
    let desk = Desk::with_model();
    transcript!(desk, "inspect model.safetensors", @"
    exit 0
    --- stdout
    checkpoint of 1 file, 5 tensors: 312 B

    Components
      name   container    root  tensors  elements  bytes  dtypes
      model  safetensors  -           5       138  312 B  BF16 2, I64 1, F32 2

    Sources
      file               bytes
      model.safetensors    664
    ");
    transcript!(desk, "inspect model.safetensors --tensors blocks.*", @"
    exit 0
    --- stdout
    checkpoint of 1 file, 5 tensors: 312 B

    Components
      name   container    root  tensors  elements  bytes  dtypes
      model  safetensors  -           5       138  312 B  BF16 2, I64 1, F32 2

    Sources
      file               bytes
      model.safetensors    664

    Tensors
      component  name             dtype  shape   bytes  file
      model      blocks.0.weight  BF16   [8, 6]     96  model.safetensors
      model      blocks.0.bias    F32    [5]        20  model.safetensors
    ");
    transcript!(desk, "inspect model.safetensors --rank 0", @"
    exit 2
    --- stderr
    error: a checkpoint belongs to no rank
    hint: `wpack plan` says what each rank would hold; --rank is for packs
    ");
}

#[test]
fn names_cannot_drive_the_terminal() {
    let desk = Desk::new();
    desk.safetensors("m.safetensors", &[("a\\u202eb\\u2066", "U8", &[1])]);
    desk.done("convert m.safetensors -o m.wpack");
    transcript!(desk, "inspect m.wpack --tensors", @r"
    exit 0
    --- stdout
    m.wpack: wpack format 1, 128 KiB (131,072 B)
      digest  0c23b99259c8a55e5812555bf0f310048160485df9bb9ef20d247cc991362883
      layout  replicate, for any number of ranks
      file    64 KiB of header and index, extents aligned to 64 KiB
      plan    1 line, --plan prints them

    Components
      name   layout     tensors        parameters  bytes  dtypes
      model  replicate        1  0 + 1 in buffers    1 B  U8

    Extents
      #  component  held by  slices  bytes  at byte
      0  model      all           1    1 B   65,536

    Bytes by who holds them
      every rank  1 B

    Host memory of a node
      ranks  this pack, mapped  private copies
          1                1 B             1 B
          2                1 B             2 B
          4                1 B             4 B
          8                1 B             8 B
      mapped pages are shared and can be dropped; private copies cannot

    Placements
      component  tensors  bytes  placement  because
      model            1    1 B  Replicate  replicate: U8 is not floating point

    Sources
      file           bytes
      m.safetensors     81

    Tensors
      component  name                dtype  shape  bytes  role    rule
      model      a\u{202e}b\u{2066}  U8     [1]        1  buffer     0
    ");
}
