//! Checks that an awk program runs nothing, reads no other file and writes none.

/// Words that access something outside the program.
const REFUSED: [&str; 13] = [
    "system",
    "getline",
    "ENVIRON",
    "fflush",
    "close",
    "PROCINFO",
    "ARGV",
    "ARGC",
    "SYMTAB",
    "FUNCTAB",
    "include",
    "load",
    "namespace",
];

/// Accepts programs of patterns and actions on the lines of the input.
///
/// # Errors
/// What is not accepted, as part of a sentence.
pub fn check(program: &str) -> Result<(), String> {
    // Also searched in the raw text: it is not always clear whether a slash divides or begins a regular expression, and
    // a wrong guess could hide a name.
    if let Some(word) = REFUSED.iter().find(|word| program.contains(**word)) {
        return Err(format!("`{word}`"));
    }
    if program.contains("\\\n") {
        return Err("a line that is continued with a backslash".to_owned());
    }
    let chars: Vec<char> = program.chars().collect();
    let mut at = 0;
    let mut depth = 0_usize;
    let mut braces = 0_usize;
    let mut last = ' ';
    // Whether a slash here would begin a regular expression rather than divide.
    let mut operand_next = true;
    while let Some(&next) = chars.get(at) {
        match next {
            '"' => {
                at = quoted(&chars, at + 1)?;
                last = '"';
                operand_next = false;
                continue;
            }
            '/' if last == ')' && chars[at + 1..].contains(&'/') => return Err("a slash after `)`".to_owned()),
            '/' if operand_next => {
                at = pattern(&chars, at + 1)?;
                last = '/';
                operand_next = false;
                continue;
            }
            '#' => {
                at += chars[at..].iter().take_while(|next| **next != '\n').count();
                continue;
            }
            '@' => return Err("`@` calls a function whose name is a value".to_owned()),
            '|' if chars.get(at + 1) == Some(&'|') => at += 1,
            '|' => return Err("a pipe".to_owned()),
            '>' if chars.get(at + 1) == Some(&'=') => at += 1,
            '>' if depth == 0 && braces > 0 => {
                return Err("`>` outside parentheses in an action writes a file".to_owned());
            }
            '{' => braces += 1,
            '}' => braces = braces.saturating_sub(1),
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            '\\' if chars.get(at + 1) != Some(&'\n') => return Err("a backslash outside a string".to_owned()),
            _ if next == '_' || next.is_ascii_alphabetic() => {
                let word: String = chars[at..]
                    .iter()
                    .take_while(|next| **next == '_' || next.is_ascii_alphanumeric())
                    .collect();
                last = 'a';
                at += word.len();
                operand_next = matches!(
                    word.as_str(),
                    "return" | "exit" | "delete" | "print" | "printf" | "in" | "case" | "else" | "do"
                );
                continue;
            }
            _ => {}
        }
        at += 1;
        if !next.is_ascii_whitespace() {
            last = next;
            operand_next = !(next.is_ascii_digit() || matches!(next, ')' | ']' | '$' | '.'));
        }
    }
    Ok(())
}

fn quoted(chars: &[char], start: usize) -> Result<usize, String> {
    let mut at = start;
    loop {
        match chars.get(at) {
            None | Some('\n') => return Err("a string is not closed".to_owned()),
            Some('"') => return Ok(at + 1),
            Some('\\') => at += 2,
            Some(_) => at += 1,
        }
    }
}

/// A regular expression. A slash in a bracket expression is refused, because awk implementations differ on it.
fn pattern(chars: &[char], start: usize) -> Result<usize, String> {
    let mut at = start;
    let mut bracket = false;
    loop {
        match chars.get(at) {
            None | Some('\n') => return Err("a pattern is not closed".to_owned()),
            Some('/') if bracket => return Err("a slash inside brackets".to_owned()),
            Some('/') => return Ok(at + 1),
            Some('[') => bracket = true,
            Some(']') => bracket = false,
            Some('\\') => at += 1,
            Some(_) => {}
        }
        at += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn programs_that_only_read_lines_are_accepted() {
        for program in [
            "{print $1}",
            "NR==1",
            "/foo/ {n++} END {print n}",
            "{sum += $1} END {print sum/NR}",
            "BEGIN{FS=\":\"} {print $1 \"|\" $2}",
            "$3 ~ /a\\/b/",
            "length($0) <= 80",
            "{ if (($2 > 3) || ($1 < 4)) print }",
            "!seen[$0]++",
            "{printf \"%s\\n\", $NF}",
            "NR>=5 && NR<=10",
            "(NR > 1)",
            "NR > 1 {print}",
            "$2>5",
        ] {
            assert_eq!(check(program), Ok(()), "{program}");
        }
    }

    #[test]
    fn programs_that_reach_outside_are_not() {
        for program in [
            "BEGIN{system(\"id\")}",
            "BEGIN{SYMTAB[\"AR\" \"GC\"] = 2}",
            "{print > \"x\"}",
            "{print | \"sh\"}",
            "{\"id\" | getline}",
            "BEGIN{while((getline l < \"/etc/passwd\")>0) print l}",
            "{print >> \"x\"}",
            "BEGIN{print ENVIRON[\"X\"]}",
            "@include \"x\"",
            "BEGIN{f=\"system\"; @f(\"id\")}",
            "{print $1 |& \"sh\"}",
            "{a = 1 /2; system(\"/\")}",
            "{print \"a\" > $1}",
            "{x = y /system(\"id\")/ 2}",
            "BEGIN { printf \"x\" > \"/tmp/y\" }",
            "/[/]/ system(\"x\")",
            "{ print(1)>\"x\" }",
            "{if(1)/\"/;print \"x\" > \"y\";/\"/}",
        ] {
            assert!(check(program).is_err(), "{program}");
        }
    }
}
