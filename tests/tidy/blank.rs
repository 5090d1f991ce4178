//! Rust text without its comments and literals, so that the rules for code do not read braces and words in them. A
//! lexer of just that much; it never fails, since what it misreads the compiler refuses anyway.

/// The text with comments, strings and character literals turned into spaces; newlines stay.
pub(crate) fn blank(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let end = literal_end(bytes, at);
        match end {
            Some(end) => {
                let end = end.min(bytes.len());
                out[at..end]
                    .iter_mut()
                    .filter(|b| **b != b'\n')
                    .for_each(|b| *b = b' ');
                at = end;
            }
            None => at += 1,
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Where the comment or literal that begins at `at` ends; `None` when none begins there.
fn literal_end(bytes: &[u8], at: usize) -> Option<usize> {
    let rest = &bytes[at..];
    let word_before = at > 0 && (bytes[at - 1].is_ascii_alphanumeric() || bytes[at - 1] == b'_');
    if rest.starts_with(b"//") {
        return Some(at + rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len()));
    }
    if rest.starts_with(b"/*") {
        return Some(at + block_comment_len(rest));
    }
    if !word_before && (rest[0] == b'r' || rest.starts_with(b"br")) {
        let open = if rest[0] == b'b' { 2 } else { 1 };
        let hashes = rest[open..].iter().take_while(|b| **b == b'#').count();
        if rest.get(open + hashes) == Some(&b'"') {
            let close = [b"\"".to_vec(), vec![b'#'; hashes]].concat();
            let body = open + hashes + 1;
            let len = rest[body..]
                .windows(close.len())
                .position(|w| w == close)
                .unwrap_or(rest.len());
            return Some(at + body + len + close.len());
        }
    }
    match rest[0] {
        b'"' => Some(at + 1 + escaped_len(&rest[1..], b'"')),
        // A quote opens a character only if another closes it: otherwise it is a lifetime.
        b'\'' if rest.get(1) == Some(&b'\\') => Some(at + 1 + escaped_len(&rest[1..], b'\'')),
        b'\'' => {
            let char_len = std::str::from_utf8(&rest[1..rest.len().min(5)])
                .map_or_else(|e| e.valid_up_to(), str::len)
                .min(4);
            let first = std::str::from_utf8(&rest[1..1 + char_len]).ok()?.chars().next()?;
            (rest.get(1 + first.len_utf8()) == Some(&b'\'')).then(|| at + 2 + first.len_utf8())
        }
        _ => None,
    }
}

fn block_comment_len(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < rest.len() {
        match &rest[at..rest.len().min(at + 2)] {
            b"/*" => (depth, at) = (depth + 1, at + 2),
            b"*/" => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    at
}

/// Bytes up to and including the closing quote.
fn escaped_len(rest: &[u8], quote: u8) -> usize {
    let mut at = 0;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            b if b == quote => return at + 1,
            _ => at += 1,
        }
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_and_comments_are_blank() {
        let text = "a /* { /* } */ */ b // {\n\"{\\\"\" c r#\"{\"# d '{' '\\'' 'é' <'a> e";
        let left: Vec<String> = blank(text).split_whitespace().map(str::to_owned).collect();
        assert_eq!(left, ["a", "b", "c", "d", "<'a>", "e"]);
        assert_eq!(blank(text).matches('\n').count(), 1);
    }
}
