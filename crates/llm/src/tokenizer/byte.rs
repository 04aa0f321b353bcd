//! GPT-2's mapping of bytes to printable characters.

/// The character of each byte: itself if printable, otherwise the next one from U+0100 on.
pub(super) fn chars() -> [char; 256] {
    let mut out = ['\0'; 256];
    let mut next = 0x100;
    for (byte, slot) in out.iter_mut().enumerate() {
        let is_printable = matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
        let code = if is_printable { byte as u32 } else { next };
        next += u32::from(!is_printable);
        *slot = char::from_u32(code).expect("below U+0200");
    }
    out
}

/// Decodes a token to bytes; `None` if it contains other characters.
pub(super) fn decode(token: &str) -> Option<Vec<u8>> {
    let byte = |c: char| match c {
        '\u{21}'..='\u{7e}' | '\u{a1}'..='\u{ac}' | '\u{ae}'..='\u{ff}' => Some(c as u8),
        // In the order of the bytes that are not printable.
        '\u{100}'..='\u{120}' => Some((c as u32 - 0x100) as u8),
        '\u{121}'..='\u{142}' => Some((c as u32 - 0x121 + 0x7f) as u8),
        '\u{143}' => Some(0xad),
        _ => None,
    };
    token.chars().map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_round_trips() {
        for (byte, char) in chars().into_iter().enumerate() {
            assert_eq!(decode(&char.to_string()), Some(vec![byte as u8]));
        }
        assert_eq!(chars()[usize::from(b' ')], 'Ġ');
        assert_eq!(chars()[usize::from(b'\n')], 'Ċ');
        assert_eq!(decode("a b"), None);
    }
}
