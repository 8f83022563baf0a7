//! Writing small zip archives.

/// A zip archive of stored records.
pub(crate) fn stored_zip(records: &[(&str, &[u8])]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut directory = Vec::new();
    for (name, data) in records {
        let len = u32::try_from(data.len()).expect("below 4 GiB");
        let offset = u32::try_from(out.len()).expect("below 4 GiB");
        let mut header = vec![20, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        header.extend(crc32(data).to_le_bytes());
        header.extend(len.to_le_bytes());
        header.extend(len.to_le_bytes());
        header.extend(u16::try_from(name.len()).expect("short").to_le_bytes());
        header.extend([0, 0]);
        out.extend(b"PK\x03\x04");
        out.extend(&header);
        out.extend(name.bytes());
        out.extend(*data);
        directory.extend(b"PK\x01\x02\x14\x00");
        directory.extend(&header);
        directory.extend([0; 10]);
        directory.extend(offset.to_le_bytes());
        directory.extend(name.bytes());
    }
    let count = u16::try_from(records.len()).expect("few").to_le_bytes();
    let start = u32::try_from(out.len()).expect("below 4 GiB");
    out.extend(&directory);
    out.extend(b"PK\x05\x06\x00\x00\x00\x00");
    out.extend(count);
    out.extend(count);
    out.extend(
        u32::try_from(directory.len())
            .expect("below 4 GiB")
            .to_le_bytes(),
    );
    out.extend(start.to_le_bytes());
    out.extend([0, 0]);
    out
}

/// CRC-32 of zip, bit by bit: the objects are small.
fn crc32(data: &[u8]) -> u32 {
    !data.iter().fold(!0, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| {
            (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg())
        })
    })
}
