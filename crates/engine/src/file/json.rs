//! JSON, as far as the header of safetensors needs it: dictionaries, lists, strings and natural numbers.
//!
//! A reader of its own rather than `serde_json`: the header is flat, its order matters, and that crate's
//! comparisons of numbers with its values would make `assert_eq!(x.to_vec::<f32>()?, [])` ambiguous in
//! every program that uses this one.

use std::borrow::Cow;

/// What is left of a text.
pub(super) struct Json<'a>(&'a str);

/// A value, or what is wrong with the text.
pub(super) type Parsed<T> = Result<T, &'static str>;

impl<'a> Json<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self(text)
    }

    fn eat(&mut self, token: char) -> bool {
        self.0 = self.0.trim_start_matches([' ', '\t', '\n', '\r']);
        let rest = self.0.strip_prefix(token);
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }

    fn expect(&mut self, token: char, error: &'static str) -> Parsed<()> {
        self.eat(token).then_some(()).ok_or(error)
    }

    /// An error unless only blanks are left.
    pub(super) fn end(&mut self) -> Parsed<()> {
        match self.0.trim_matches([' ', '\t', '\n', '\r']) {
            "" => Ok(()),
            _ => Err("more after the end"),
        }
    }

    /// A dictionary: calls `value` with each key when its value comes next.
    pub(super) fn dictionary(
        &mut self,
        mut value: impl FnMut(&mut Self, Cow<'a, str>) -> Parsed<()>,
    ) -> Parsed<()> {
        self.expect('{', "no dictionary where one belongs")?;
        if self.eat('}') {
            return Ok(());
        }
        loop {
            let key = self.string()?;
            self.expect(':', "no `:` after a key")?;
            value(self, key)?;
            if !self.eat(',') {
                return self.expect('}', "a dictionary does not end");
            }
        }
    }

    /// A list: calls `value` when each of its values comes next.
    pub(super) fn list(&mut self, mut value: impl FnMut(&mut Self) -> Parsed<()>) -> Parsed<()> {
        self.expect('[', "no list where one belongs")?;
        if self.eat(']') {
            return Ok(());
        }
        loop {
            value(self)?;
            if !self.eat(',') {
                return self.expect(']', "a list does not end");
            }
        }
    }

    /// A natural number.
    pub(super) fn number(&mut self) -> Parsed<u64> {
        self.0 = self.0.trim_start_matches([' ', '\t', '\n', '\r']);
        let len = self.0.bytes().take_while(u8::is_ascii_digit).count();
        let (digits, rest) = self.0.split_at(len);
        if len > 1 && digits.starts_with('0') {
            return Err("a number begins with 0");
        }
        self.0 = rest;
        digits.parse().map_err(|_| "no natural number of 64 bits")
    }

    /// A string, borrowed where it has no escapes.
    pub(super) fn string(&mut self) -> Parsed<Cow<'a, str>> {
        self.expect('"', "no string where one belongs")?;
        let mut out = Cow::Borrowed("");
        loop {
            let stop = |c: char| c == '"' || c == '\\' || c < ' ';
            let at = self.0.find(stop).ok_or("a string does not end")?;
            let (plain, rest) = self.0.split_at(at);
            match &mut out {
                Cow::Borrowed("") => out = Cow::Borrowed(plain),
                _ => out.to_mut().push_str(plain),
            }
            self.0 = rest;
            if self.eat('"') {
                return Ok(out);
            }
            let escaped = self.0.strip_prefix('\\');
            self.0 = escaped.ok_or("a control character in a string")?;
            let char = self.escape()?;
            out.to_mut().push(char);
        }
    }

    /// What follows a backslash.
    fn escape(&mut self) -> Parsed<char> {
        let mut rest = self.0.chars();
        let char = match rest.next().ok_or("a string does not end")? {
            c @ ('"' | '\\' | '/') => c,
            'b' => '\u{8}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'u' => {
                self.0 = rest.as_str();
                return self.unicode();
            }
            _ => return Err("an escape that JSON does not have"),
        };
        self.0 = rest.as_str();
        Ok(char)
    }

    /// What follows `\u`; characters beyond 16 bits are two of them.
    fn unicode(&mut self) -> Parsed<char> {
        const ERROR: &str = "a `\\u` that is no character";
        let high = self.unit()?;
        if let Some(char) = char::from_u32(high) {
            return Ok(char);
        }
        self.0 = self.0.strip_prefix("\\u").ok_or(ERROR)?;
        let low = self.unit()?;
        let mut decoded = char::decode_utf16([high as u16, low as u16]);
        decoded.next().and_then(Result::ok).ok_or(ERROR)
    }

    /// Four hexadecimal digits.
    fn unit(&mut self) -> Parsed<u32> {
        let digits = self.0.get(..4).ok_or("a string does not end")?;
        if !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err("a `\\u` without four digits");
        }
        self.0 = &self.0[4..];
        u32::from_str_radix(digits, 16).map_err(|_| "a `\\u` without four digits")
    }
}

/// A string in quotes.
pub(super) fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for char in text.chars() {
        match char {
            '"' | '\\' => out.extend(['\\', char]),
            c if c < ' ' => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_read_with_their_escapes() {
        for (text, expected) in [
            (r#""""#, Ok("")),
            (r#" "plain é""#, Ok("plain é")),
            (r#""a\"b\\c\/d\n\t\r\b\f""#, Ok("a\"b\\c/d\n\t\r\u{8}\u{c}")),
            (r#""\u00e9\ud83d\ude00x""#, Ok("é😀x")),
            (r#""\\\"""#, Ok("\\\"")),
            (r#""open"#, Err("a string does not end")),
            (r#""\x""#, Err("an escape that JSON does not have")),
            (r#""\u12é""#, Err("a `\\u` without four digits")),
            (r#""\u123é""#, Err("a string does not end")),
            (r#""\u+123""#, Err("a `\\u` without four digits")),
            (r#""\ud83d""#, Err("a `\\u` that is no character")),
            (r#""\ud83d\u0041""#, Err("a `\\u` that is no character")),
            (r#""\ude00""#, Err("a `\\u` that is no character")),
            ("\"a\nb\"", Err("a control character in a string")),
            ("x", Err("no string where one belongs")),
        ] {
            let result = Json::new(text).string();
            assert_eq!(result.as_deref(), expected.as_deref(), "{text}");
        }
    }

    #[test]
    fn quotes_are_read_back() {
        for text in ["", "plain", "\"\\\n\u{0}\u{1f} é😀"] {
            assert_eq!(Json::new(&quoted(text)).string().unwrap(), text);
        }
    }

    #[test]
    fn numbers_are_natural() {
        assert_eq!(Json::new("0").number(), Ok(0));
        assert_eq!(Json::new(" 18446744073709551615,").number(), Ok(u64::MAX));
        for text in ["", "-1", "01", "18446744073709551616", "x"] {
            assert!(Json::new(text).number().is_err(), "{text}");
        }
    }

    #[test]
    fn lists_and_dictionaries_are_read_in_order() {
        let mut seen = Vec::new();
        let mut json = Json::new("{\"b\": [1, 2] ,\n\"a\":[]} ");
        let result = json.dictionary(|json, key| {
            seen.push(key.into_owned());
            json.list(|json| {
                seen.push(json.number()?.to_string());
                Ok(())
            })
        });
        assert_eq!((result, json.end()), (Ok(()), Ok(())));
        assert_eq!(seen, ["b", "1", "2", "a"]);
        for text in ["", "{", "{\"a\"}", "{\"a\":1", "{\"a\":1,}", "{,}", "[]"] {
            let mut json = Json::new(text);
            let result = json.dictionary(|json, _| json.number().map(drop));
            assert!(result.is_err(), "{text}");
        }
    }
}
