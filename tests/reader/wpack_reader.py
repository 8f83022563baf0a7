"""Reads packfiles of version 1: a second implementation, written from docs/format.md alone.

python wpack_reader.py FILE          checks every byte and lists each rank's slices
python wpack_reader.py FILE --json   the same as JSON, with a SHA-256 of each slice's bytes
"""

import hashlib
import json
import math
import struct
import sys

TYPES = ("BOOL 8 U8 8 I8 8 U16 16 I16 16 U32 32 I32 32 U64 64 I64 64 F16 16 BF16 16 F32 32 F64 64 C32 32 C64 64 "
         "C128 128 F8_E4M3 8 F8_E5M2 8 F8_E4M3FNUZ 8 F8_E5M2FNUZ 8 F8_E8M0 8 F6_E2M3 6 F6_E3M2 6 F4 4 BITS1X8 8 "
         "BITS2X4 8 BITS4X2 8 BITS8 8 BITS16 16").split()
DTYPES = {code: (name, int(bits)) for code, (name, bits) in enumerate(zip(TYPES[::2], TYPES[1::2]), 1)}
BLOCK, NONE, SAME_SHAPE, CRC_TABLE = 8 << 20, 0xFFFFFFFF, 0xFFFF, []
for value in range(256):
    for _ in range(8):
        value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
    CRC_TABLE.append(value)


def need(condition, what):
    if not condition:
        raise ValueError(f"bad packfile: {what}")


def check(data, crc, sha, what):
    value = NONE
    for byte in data:
        value = value >> 8 ^ CRC_TABLE[(value ^ byte) & 255]
    need(value ^ NONE == crc and sha in (None, hashlib.sha256(data).digest()), what)
    return data


class Pack:
    def __init__(self, data):
        self.data, head = data, data[:4096]
        need(len(head) == 4096 and head[:8] == b"\x89WPACK\r\n", "magic")
        version, *sizes, reserved, _, file_len, index_len, extent_align = struct.unpack_from("<IIQQQQQ", head, 8)
        need(version == 1, f"version {version}, this reads 1")
        need(hashlib.sha256(head[:4064]).digest() == head[4064:], "header digest")
        sizes += struct.unpack_from("<QIIQ", head, 56)
        need((sizes, reserved, any(head[124:4064])) == ([4096, BLOCK, 4096, 512, 4096], 0, False), "header fields")
        need(file_len == len(data), f"{len(data)} bytes, should be {file_len}")
        self.digest, self.end = head[88:120].hex(), 4096
        root = self.table(head[72:124], "root")
        text_len, components, extents, runs, zero = struct.unpack_from("<QIIII", root)
        need(24 + 64 * components + 136 * extents + 12 * runs + text_len == len(root) and zero == 0, "root length")
        text, at = root[len(root) - text_len:], 24 + 64 * components
        self.description = json.loads(text)
        need(json.dumps(self.description, ensure_ascii=False, separators=(",", ":")).encode() == text, "JSON form")
        need(len(self.description["components"]) == components, "component count")
        mesh = self.description["mesh"]
        self.ranks = mesh and math.prod(axis["size"] for axis in mesh)
        components = [root[24 + 64 * i:][:64] for i in range(components)]
        self.tensors = [self.tensor_table(self.table(record, "tensor table"), record) for record in components]
        self.extents, run = [struct.unpack_from("<QQIIIHH", root, at + 136 * i) for i in range(extents)], at + 136 * extents
        slice_tables = [self.table(root[at + 136 * i + 32:], "slice table") for i in range(extents)]
        block_tables = [self.table(root[at + 136 * i + 84:], "block table") for i in range(extents)]
        files = [self.take(file["len"], 8, file["path"]) for file in self.description["files"]]
        need(all(hashlib.sha256(body).hexdigest() == file["sha256"]
                 for file, body in zip(self.description["files"], files)), "embedded file")
        self.files = {(file["component"], file["path"]): body for file, body in zip(self.description["files"], files)}
        need(self.take(0, 8, "index") == b"" and self.end == 4096 + index_len, "index length")
        self.slices, self.owners = [], []
        for (offset, length, component, count, run_count, reserved, _), slices, blocks in zip(
                self.extents, slice_tables, block_tables):
            self.owners.append([rank for first, count_, step in struct.iter_unpack("<III", root[run:][:12 * run_count])
                                for rank in range(first, first + count_ * step, step)] if run_count else None)
            run += 12 * run_count
            body = self.take(length, extent_align, "extent", offset)
            need(reserved == 0 and len(blocks) == 36 * -(-length // BLOCK), "block count")
            for i, (crc, sha) in enumerate(struct.iter_unpack("<I32s", blocks)):
                check(body[i * BLOCK:(i + 1) * BLOCK], crc, sha, f"block {i} of the extent at {offset}")
            self.slices.append(list(self.slice_table(slices, count, body, component)))
        need(self.take(0, extent_align, "end") == b"" and self.end == file_len, "end of file")

    def take(self, length, align, what, offset=None):
        """The next `length` bytes behind zero padding; `offset` is where the file says they are."""
        start = -(-self.end // align) * align
        need(offset in (None, start) and start + length <= len(self.data), f"place of {what}")
        need(not any(self.data[self.end:start]), f"padding before {what}")
        self.end = start + length
        return self.data[start:self.end]

    def table(self, reference, what):
        offset, length, sha, crc = struct.unpack_from("<QQ32sI", reference)
        return check(self.take(length, 8, what, offset), crc, sha, what)

    def tensor_table(self, table, record):
        count, name_count, word_count = struct.unpack_from("<IIQ", table)
        need((count, 0) == struct.unpack_from("<IQ", record, 52), "tensor count")
        words = struct.unpack_from(f"<{word_count}Q", table, 16 + 32 * count)
        at = 16 + 32 * count + 8 * word_count
        text, names, tensors = table[at + 20 * name_count:], [], []
        for start, length, source, tensor, following in struct.iter_unpack("<IIIII", table[at:at + 20 * name_count]):
            name = text[start:start + length]
            source = name if source == NONE else text[start + length:start + length + source]
            names.append((name.decode(), source.decode(), tensor, following))
        need(all(a[0].encode() < b[0].encode() for a, b in zip(names, names[1:])), "order of names")
        for i in range(count):
            name, word, dtype, source, dims, stored, rule, _, role = struct.unpack_from("<IIHHHHIIB", table, 16 + 32 * i)
            entry = {"names": [], "dtype": DTYPES[dtype][0], "source_dtype": DTYPES[source][0],
                     "shape": list(words[word:word + dims]), "role": ["parameter", "buffer"][role]}
            entry["stored_shape"] = entry["shape"] if stored == SAME_SHAPE else list(words[word + dims:][:stored])
            while name != NONE and len(entry["names"]) < name_count:
                need(names[name][2] == i, "chain of names")
                entry["names"].append(list(names[name][:2]))
                name = names[name][3]
            tensors.append(entry)
        return tensors

    def slice_table(self, table, count, body, component):
        need(struct.unpack_from("<II", table) == (count, 0), "slice count")
        words, end = [word for word, in struct.iter_unpack("<Q", table[16 + 40 * count:])], 0
        for i in range(count):
            offset, length, crc, tensor, parts, word, dtype, dims, dim, kind, content = \
                struct.unpack_from("<QQIIIIHHHBB", table, 16 + 40 * i)
            shape, pool = words[word:word + dims], iter(words[word + dims:])
            need(length * 8 == math.prod(shape) * DTYPES[dtype][1], "length of a slice")
            need(offset % (4096 if length >= 4096 else 512) == 0 and not any(body[end:offset]), "padding of slices")
            end = offset + length
            if 0 < length < BLOCK:
                check(body[offset:end], crc, None, f"slice {i}")
            read = [[tensor, [0] * dims, shape]] if content == 0 else []
            for head in (next(pool) for _ in range(parts)):
                if head & NONE == 1:
                    read.append({"fill": next(pool), "value": struct.pack("<QQ", next(pool), next(pool)).hex()})
                else:
                    size = dims if content == 1 else 1
                    read.append([tensor if content == 1 else head >> 32, [next(pool) for _ in range(size)],
                                 [next(pool) for _ in range(size)]])
            yield {"component": component, "kind": ["value", "master"][kind], "dtype": DTYPES[dtype][0], "shape": shape,
                   "content": ["whole", "boxes", "flat"][content], "dim": dim, "parts": read}, body[offset:end]
        need(end == len(body), "end of slices")

    def shard(self, rank):
        """The slices of a rank in file order, each with its bytes."""
        need(self.ranks is None or rank < self.ranks, f"no rank {rank}")
        return [entry for slices, owners in zip(self.slices, self.owners) if owners is None or rank in owners
                for entry in slices]

    def dump(self):
        def shown(entry, data):
            return {**entry, "sha256": hashlib.sha256(data).hexdigest()}
        return {"digest": self.digest, "description": self.description, "tensors": self.tensors,
                "shards": [[shown(*entry) for entry in self.shard(rank)] for rank in range(self.ranks or 1)]}


if __name__ == "__main__":
    with open(sys.argv[1], "rb") as file:
        pack = Pack(file.read())
    if "--json" in sys.argv[2:]:
        json.dump(pack.dump(), sys.stdout, ensure_ascii=True, indent=1)
    else:
        for rank in range(pack.ranks or 1):
            for entry, data in pack.shard(rank):
                names = [pack.tensors[entry["component"]][part[0]]["names"][0][0]
                         for part in entry["parts"] if isinstance(part, list)]
                print(rank, entry["dtype"], entry["shape"], *map(ascii, names))
