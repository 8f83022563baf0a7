//! Numbers and strings as the text opcodes of protocol 0 write them.

/// A whole number of any size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whole {
    /// Fits in 64 bits.
    Int(i64),
    /// Fits in 128 bits.
    Wide(i128),
    /// Larger; its value is not kept.
    Huge,
}

/// Two's complement, little-endian, as LONG1 and LONG4 hold it. No bytes are 0.
pub(super) fn whole_from_bytes(bytes: &[u8]) -> Whole {
    let negative = bytes.last().is_some_and(|&top| top & 0x80 != 0);
    let fill = if negative { 0xff } else { 0 };
    let mut wide = [fill; 16];
    if bytes.len() > wide.len() {
        let (low, high) = bytes.split_at(wide.len());
        let sign = low.last().is_some_and(|&top| top & 0x80 != 0);
        if sign != negative || high.iter().any(|&byte| byte != fill) {
            return Whole::Huge;
        }
    }
    for (to, from) in wide.iter_mut().zip(bytes) {
        *to = *from;
    }
    narrow(i128::from_le_bytes(wide))
}

/// Decimal digits with a sign, spaces around and a trailing `L` allowed.
pub(super) fn whole_from_text(line: &[u8]) -> Option<Whole> {
    let text = std::str::from_utf8(line).ok()?.trim();
    let text = text.strip_suffix('L').unwrap_or(text);
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    Some(text.parse::<i128>().map_or(Whole::Huge, narrow))
}

fn narrow(wide: i128) -> Whole {
    i64::try_from(wide).map_or(Whole::Wide(wide), Whole::Int)
}

/// A number with a point, as `repr` of Python writes it.
pub(super) fn float_from_text(line: &[u8]) -> Option<f64> {
    std::str::from_utf8(line).ok()?.trim().parse().ok()
}

/// The argument of STRING: quoted, with escapes; gives the bytes.
pub(super) fn unquote(line: &[u8]) -> Option<Vec<u8>> {
    let line = line.trim_ascii();
    let (&quote, rest) = line.split_first()?;
    let (&last, inner) = rest.split_last()?;
    if last != quote || !matches!(quote, b'\'' | b'"') {
        return None;
    }
    let mut out = Vec::with_capacity(inner.len());
    let mut bytes = inner.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        match bytes.next()? {
            b'\n' => {}
            b'a' => out.push(0x07),
            b'b' => out.push(0x08),
            b't' => out.push(b'\t'),
            b'n' => out.push(b'\n'),
            b'v' => out.push(0x0b),
            b'f' => out.push(0x0c),
            b'r' => out.push(b'\r'),
            b'x' => {
                let high = hex(bytes.next()?)?;
                let low = hex(bytes.next()?)?;
                out.push(u8::try_from(high * 16 + low).ok()?);
            }
            first @ b'0'..=b'7' => {
                let mut value = u32::from(first - b'0');
                for _ in 0..2 {
                    let Some(digit) = bytes.next_if(|b| (b'0'..=b'7').contains(b)) else {
                        break;
                    };
                    value = value * 8 + u32::from(digit - b'0');
                }
                out.push(u8::try_from(value & 0xff).ok()?);
            }
            other @ (b'\\' | b'\'' | b'"') => out.push(other),
            other => out.extend([b'\\', other]),
        }
    }
    Some(out)
}

/// The argument of UNICODE: Latin-1 with `\u` and `\U` escapes (`raw-unicode-escape`).
pub(super) fn raw_unicode(line: &[u8]) -> Option<String> {
    let mut out = String::with_capacity(line.len());
    let mut rest = line;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        let digits = match (byte, after.first()) {
            (b'\\', Some(b'u')) => 4,
            (b'\\', Some(b'U')) => 8,
            _ => {
                out.push(char::from(byte));
                continue;
            }
        };
        let code = after.get(1..1 + digits)?;
        let value = code.iter().try_fold(0_u32, |value, &digit| {
            value.checked_mul(16)?.checked_add(hex(digit)?)
        })?;
        out.push(char::from_u32(value)?);
        rest = after.get(1 + digits..)?;
    }
    Some(out)
}

fn hex(digit: u8) -> Option<u32> {
    char::from(digit).to_digit(16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wholes_of_every_width() {
        assert_eq!(whole_from_bytes(b""), Whole::Int(0));
        assert_eq!(whole_from_bytes(b"\xff"), Whole::Int(-1));
        assert_eq!(whole_from_bytes(b"\x00\x80"), Whole::Int(-32768));
        let magic = b"\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19";
        assert_eq!(
            whole_from_bytes(magic),
            Whole::Wide(0x1950_a86a_20f9_469c_fc6c)
        );
        assert_eq!(whole_from_bytes(&[0xff; 40]), Whole::Int(-1));
        assert_eq!(whole_from_bytes(&[0x7f; 17]), Whole::Huge);
        assert_eq!(
            whole_from_text(b"119547037146038801333356L"),
            Some(Whole::Wide(0x1950_a86a_20f9_469c_fc6c))
        );
        assert_eq!(whole_from_text(b" -7 "), Some(Whole::Int(-7)));
        assert_eq!(whole_from_text(b"1_0"), None);
        assert_eq!(whole_from_text(b""), None);
    }

    #[test]
    fn strings_of_protocol_0() {
        assert_eq!(
            unquote(b"'a\\x41\\n\\'\\101\\q'").as_deref(),
            Some(&b"aA\n'A\\q"[..])
        );
        assert_eq!(unquote(b"'a\""), None);
        assert_eq!(unquote(b"'"), None);
        assert_eq!(unquote(b"'a\\'"), None);
        assert_eq!(
            raw_unicode(b"a\\u00e9\xe9\\n").as_deref(),
            Some("a\u{e9}\u{e9}\\n")
        );
        assert_eq!(raw_unicode(b"\\ud800"), None);
        assert_eq!(raw_unicode(b"\\u12"), None);
    }
}
