//! Inserts values into shell text so that each stays one word, whatever it contains. Pure.
//!
//! A template is rendered with a marker in the place of each value. This module then tracks the shell's quoting around
//! the markers, and quotes each value for its context: unquoted, in `'…'`, or in `"…"`.

mod evaluated;

use super::template_error::TemplateError;
use std::fmt::Write as _;

/// A marker: this character, the number of the value, [`CLOSE`]. Private-use characters, refused in templates.
pub(super) const OPEN: char = '\u{f5a0}';
pub(super) const CLOSE: char = '\u{f5a1}';

/// A value for a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ShellValue {
    One(String),
    /// Several words when unquoted; joined by spaces inside quotes.
    Many(Vec<String>),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Bare,
    Single,
    Double,
    Comment,
    /// After a construct that only a full shell parser can follow.
    Lost(&'static str),
}

/// The text with each marker replaced by its quoted value.
///
/// # Errors
/// A value in a comment, or after a substitution or here-document, where no quoting is known to be safe; a value where
/// the shell would evaluate it, or that could get there through a variable and do something.
pub(super) fn fill(text: &str, words: &[ShellValue]) -> Result<String, TemplateError> {
    may_be_evaluated(text, words)?;
    let mut out = String::with_capacity(text.len());
    let mut place = Place::Bare;
    let mut sums = Arithmetic::default();
    let mut rest = text.chars().peekable();
    let mut before = '\n';
    while let Some(character) = rest.next() {
        if character == OPEN {
            let number: String = rest.by_ref().take_while(|c| *c != CLOSE).collect();
            let word = number.parse::<usize>().ok().and_then(|at| words.get(at));
            let word = word.ok_or_else(|| TemplateError::shell("a value was changed after it was marked"))?;
            // Together with the value, the `$` would begin a variable, a substitution or another kind of quote.
            if before == '$' && matches!(place, Place::Bare | Place::Double) {
                return Err(TemplateError::shell(
                    "a value comes after `$`: write `{{ name }}` without it",
                ));
            }
            sums.value(place)?;
            quote(&mut out, place, word)?;
            before = CLOSE;
            continue;
        }
        out.push(character);
        if character == '\\' && matches!(place, Place::Bare | Place::Double) {
            match rest.next() {
                Some(OPEN) => return Err(TemplateError::shell("a value comes after a backslash")),
                // The shell removes both, so the next character follows the one before the backslash.
                Some('\n') => out.push('\n'),
                Some(next) => {
                    out.push(next);
                    sums.character(place, before, 'x')?;
                    before = 'x';
                }
                None => {}
            }
            continue;
        }
        sums.character(place, before, character)?;
        place = step(place, before, character, rest.peek().copied());
        before = character;
    }
    sums.word_ended()?;
    Ok(out)
}

/// Refuses values that could do something if the text evaluated the variable that holds them.
fn may_be_evaluated(text: &str, words: &[ShellValue]) -> Result<(), TemplateError> {
    let mut values = words.iter().flat_map(|word| match word {
        ShellValue::One(text) => std::slice::from_ref(text),
        ShellValue::Many(texts) => texts.as_slice(),
    });
    if evaluated::parses_again(text) && values.clone().any(|value| !is_harmless(value)) {
        return Err(TemplateError {
            help: "write the command without `eval`",
            ..TemplateError::shell("a value has characters with a meaning to the shell, and the command uses `eval`")
        });
    }
    let construct = evaluated::construct(text).filter(|_| values.any(|value| evaluated::is_active(value)));
    match construct {
        Some(construct) => Err(TemplateError {
            help: "declare the parameter or the input's field as a number, or compute in the step's `when`",
            ..TemplateError::shell(format!(
                "a value has `[`, `$`, `=`, `++` or `--`, and the command has `{construct}`, where the shell could run it"
            ))
        }),
        None => Ok(()),
    }
}

/// Tracks arithmetic contexts: there the shell evaluates a value as an expression, and `a[$(command)]` runs its command
/// in spite of all quotes.
#[derive(Default)]
struct Arithmetic {
    /// Open parentheses since `((`, including these two.
    depth: usize,
    /// In the brackets of `name[…]`.
    subscript: bool,
    /// In `[[ … ]]`: whether it contains a value, and whether it contains an operator on numbers or variable names.
    test: Option<(bool, bool)>,
    /// The unquoted word so far; a quoted part is one [`CLOSE`].
    word: String,
    /// The words of the simple command before it.
    command: Vec<String>,
}

impl Arithmetic {
    fn value(&mut self, place: Place) -> Result<(), TemplateError> {
        if self.depth > 0 || self.subscript {
            return Err(Self::refused());
        }
        if evaluated::is_operand(&self.command, &self.word) {
            return Err(TemplateError {
                help: "pass it as an operand of its own: `bash -c 'echo \"$1\"' _ {{ name }}`; a variable's name is written out",
                ..TemplateError::shell(
                    "a value is the name of a variable or part of a script (`read`, `declare`, `eval`, `bash -c`), where it could run a command",
                )
            });
        }
        if let Some((value, _)) = &mut self.test {
            *value = true;
        }
        if place == Place::Bare {
            self.word.push(CLOSE);
        }
        Ok(())
    }

    fn character(&mut self, place: Place, before: char, character: char) -> Result<(), TemplateError> {
        match (place, character) {
            (Place::Bare, _) => {}
            (Place::Comment, '\n') => {
                self.word.clear();
                self.command.clear();
                return Ok(());
            }
            _ => {
                self.word.push(CLOSE);
                return Ok(());
            }
        }
        match character {
            '(' if self.depth > 0 => self.depth += 1,
            '(' if before == '(' => self.depth = 2,
            ')' => self.depth = self.depth.saturating_sub(1),
            '[' if before.is_ascii_alphanumeric() || before == '_' => self.subscript = true,
            ']' => self.subscript = false,
            _ => {}
        }
        if !" \t\n;&|()".contains(character) {
            self.word.push(character);
            return Ok(());
        }
        self.subscript = false;
        self.word_ended()?;
        if !matches!(character, ' ' | '\t') {
            self.command.clear();
        }
        Ok(())
    }

    fn word_ended(&mut self) -> Result<(), TemplateError> {
        let word = std::mem::take(&mut self.word);
        match (word.as_str(), &mut self.test) {
            ("[[", None) => self.test = Some((false, false)),
            ("]]", Some((true, true))) => return Err(Self::refused()),
            ("]]", Some(_)) => self.test = None,
            ("-eq" | "-ne" | "-lt" | "-le" | "-gt" | "-ge" | "-v" | "-R", Some((_, computes))) => *computes = true,
            _ => {}
        }
        if !word.is_empty() {
            self.command.push(word);
        }
        Ok(())
    }

    fn refused() -> TemplateError {
        TemplateError {
            help: "compare numbers with `[ … -gt … ]`, which computes nothing, or in the step's `when`",
            ..TemplateError::shell(
                "a value is in an arithmetic context (`((…))`, `[[ … -eq … ]]`, `name[…]`), where it could run a command",
            )
        }
    }
}

/// The quoting state of the shell after a character.
fn step(place: Place, before: char, character: char, next: Option<char>) -> Place {
    match (place, character) {
        (Place::Lost(_), _) => place,
        (Place::Single, '\'') | (Place::Double, '"') => Place::Bare,
        (Place::Single, _) => Place::Single,
        (Place::Comment, '\n') => Place::Bare,
        (Place::Comment, _) => Place::Comment,
        (_, '`') => Place::Lost("a backquote"),
        (_, '$') if matches!(next, Some('(' | '{' | '[')) => Place::Lost("a substitution (`$(`, `${`)"),
        (Place::Bare, '$') if matches!(next, Some('\'' | '"')) => Place::Lost("a `$'…'` quote"),
        (Place::Bare, '<' | '>') if next == Some('(') => Place::Lost("a process substitution"),
        (Place::Bare, '<') if next == Some('<') => Place::Lost("a here-document"),
        (Place::Bare, '\'') => Place::Single,
        (Place::Bare, '"') => Place::Double,
        (Place::Bare, '#') if " \t\n;&|()".contains(before) => Place::Comment,
        _ => place,
    }
}

fn quote(out: &mut String, place: Place, word: &ShellValue) -> Result<(), TemplateError> {
    let joined = match word {
        ShellValue::One(text) => text.clone(),
        ShellValue::Many(texts) if place == Place::Bare => {
            let quoted: Vec<String> = texts.iter().map(|text| bare(text)).collect();
            out.push_str(&quoted.join(" "));
            return if texts.iter().any(|text| text.contains('\0')) {
                Err(nul())
            } else {
                Ok(())
            };
        }
        ShellValue::Many(texts) => texts.join(" "),
    };
    if joined.contains('\0') {
        return Err(nul());
    }
    match place {
        Place::Bare => out.push_str(&bare(&joined)),
        Place::Single => out.push_str(&joined.replace('\'', "'\\''")),
        Place::Double => {
            for character in joined.chars() {
                if matches!(character, '\\' | '"' | '$' | '`') {
                    out.push('\\');
                }
                out.push(character);
            }
        }
        Place::Comment => return Err(TemplateError::shell("a value is in a comment")),
        Place::Lost(what) => {
            let mut message = String::new();
            let _ = write!(message, "a value comes after {what}, where it cannot be quoted safely");
            return Err(TemplateError::shell(message));
        }
    }
    Ok(())
}

fn nul() -> TemplateError {
    TemplateError::shell("a value contains a NUL byte, which no command can receive")
}

/// Quotes one word for a POSIX shell; unchanged when no character is special.
fn bare(text: &str) -> String {
    if !text.is_empty() && is_harmless(text) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// Whether no character of a value means anything to a shell.
fn is_harmless(text: &str) -> bool {
    text.chars()
        .all(|c| c.is_ascii_alphanumeric() || "_-./:@%+,".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str, value: &str) -> Result<String, TemplateError> {
        let marked = text.replace("@@", &format!("{OPEN}0{CLOSE}"));
        fill(&marked, &[ShellValue::One(value.to_owned())])
    }

    #[test]
    fn quoted_for_the_place() {
        let table = [
            ("echo @@", "plain", "echo plain"),
            ("echo @@", "", "echo ''"),
            ("echo @@", "a b", "echo 'a b'"),
            ("echo @@", "it's", "echo 'it'\\''s'"),
            ("echo @@", "$(rm -rf /)", "echo '$(rm -rf /)'"),
            ("echo \"@@\"", "$(rm) `x` \"\\", "echo \"\\$(rm) \\`x\\` \\\"\\\\\""),
            ("echo '@@'", "'; rm", "echo ''\\''; rm'"),
            ("a=\"it's\" x --f=@@", "; b", "a=\"it's\" x --f='; b'"),
            ("echo \\' @@", "; b", "echo \\' '; b'"),
            ("# don't\necho @@", "; b", "# don't\necho '; b'"),
            ("echo a#'b @@'", "'", "echo a#'b '\\'''"),
            ("echo \\\n# it's\necho @@", "; b", "echo \\\n# it's\necho '; b'"),
            ("echo a\u{a0}#'b @@'", "'", "echo a\u{a0}#'b '\\'''"),
            ("echo '$'@@", "(id)", "echo '$''(id)'"),
            ("echo '$@@'", "(id)", "echo '$(id)'"),
            ("echo \\$@@", "(id)", "echo \\$'(id)'"),
            ("[[ @@ == bug ]]", "a[$(id)]", "[[ 'a[$(id)]' == bug ]]"),
            (
                "[[ -n @@ ]] && (( n > 1 )); echo @@",
                "x y",
                "[[ -n 'x y' ]] && (( n > 1 )); echo 'x y'",
            ),
            ("[[ $n -gt 1 ]] && echo @@", "x y", "[[ $n -gt 1 ]] && echo 'x y'"),
            ("[ @@ -gt 1 ]", "a[$(id)]", "[ 'a[$(id)]' -gt 1 ]"),
            ("bash -c 'echo \"$1\"' _ @@", "a; b", "bash -c 'echo \"$1\"' _ 'a; b'"),
            ("export NAME=@@; grep -c @@", "a=b", "export NAME='a=b'; grep -c 'a=b'"),
            (
                "while read -r l; do echo $l @@; done",
                "[x]",
                "while read -r l; do echo $l '[x]'; done",
            ),
            ("(cd x; (ls @@))", "a b", "(cd x; (ls 'a b'))"),
            ("a[1]=2; ls [ab] @@", "a b", "a[1]=2; ls [ab] 'a b'"),
        ];
        for (text, value, expected) in table {
            assert_eq!(one(text, value).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn refused_where_quoting_cannot_hold() {
        for text in [
            "echo $(cat @@)",
            "echo `cat @@`",
            "cat <<EOF\n@@\nEOF",
            "echo ${x:-@@}",
            "echo $'@@'",
            "ls # @@",
            "echo \\@@",
            "echo \"$(case x in x) echo;; esac)\" @@",
            "diff <(sort a) @@",
            "echo $@@",
            "echo \"$@@\"",
            "echo \"cost: $\\\n@@\"",
            "if (( @@ > 3 )); then ls; fi",
            "((x = ((1)) + @@))",
            "[[ @@ -gt 3 ]]",
            "# a test\n[[ 3 -lt \"@@\" ]]",
            "[[ -n x && ( @@ -eq 1 ) ]]",
            "[[ -v @@ ]]",
            "[[ -n x && -v @@ ]]",
            "a[@@]=1",
            "unset x a[\"@@\"]",
            "[ -v @@ ]",
            "test -v @@",
            "printf -v @@ x",
            "let @@",
            "declare -i n=@@",
            "declare @@=1",
            "read @@ < a.txt",
            "sleep 0 & wait -n -p @@",
            "eval @@",
            "x=1; eval \"echo @@\"",
            "trap '@@' EXIT",
            "bash -c \"echo @@\"",
            "timeout 5 /bin/sh -ec 'ls @@'",
            "python3 -c 'print(\"@@\")'",
        ] {
            assert!(one(text, "x").is_err(), "{text}");
        }
        for text in [
            "n=@@; (( n > 3 ))",
            "n=@@; [[ $n -gt 3 ]] || true",
            "x=abc; n=@@; echo ${x:n}",
            "n=@@; echo $((n + 1))",
            "n=@@; declare -i m=$n",
        ] {
            assert!(one(text, "a[$(id)]").is_err(), "{text}");
            assert!(one(text, "12").is_ok(), "{text}");
        }
        assert!(one("x=@@; eval \"$x\"", "ls; id").is_err());
        assert!(one("echo @@", "\0").is_err());
    }

    #[test]
    fn lists_are_words() {
        let words = [ShellValue::Many(vec!["a b".into(), "c".into()])];
        let text = format!("ls {OPEN}0{CLOSE} \"{OPEN}0{CLOSE}\"");
        assert_eq!(fill(&text, &words).unwrap(), "ls 'a b' c \"a b c\"");
    }

    proptest::proptest! {
        #[test]
        fn a_shell_gives_back_what_went_in(value in "[ -~\n\tä]{0,24}") {
            for text in ["printf %s @@", "printf %s \"@@\"", "printf %s '@@'", "x=@@; printf %s \"$x\""] {
                let command = one(text, &value).unwrap();
                let words = posix_words(&command);
                proptest::prop_assert_eq!(words.last().map(String::as_str).unwrap_or_default(), value.as_str(), "{}", command);
            }
        }
    }

    /// Quote removal for the simple commands of the property test: returns the last word's value.
    fn posix_words(command: &str) -> Vec<String> {
        let command = match command.strip_prefix("x=") {
            Some(rest) => rest.trim_end_matches("; printf %s \"$x\""),
            None => command,
        };
        let mut words = vec![String::new()];
        let mut chars = command.chars();
        while let Some(c) = chars.next() {
            match c {
                ' ' => words.push(String::new()),
                '\'' => {
                    let inner: String = chars.by_ref().take_while(|c| *c != '\'').collect();
                    words.last_mut().unwrap().push_str(&inner);
                }
                '"' => {
                    while let Some(c) = chars.next() {
                        let pushed = match c {
                            '"' => break,
                            '\\' => chars.next().unwrap(),
                            '$' | '`' => unreachable!("an active character in {command}"),
                            c => c,
                        };
                        words.last_mut().unwrap().push(pushed);
                    }
                }
                '\\' => words.last_mut().unwrap().push(chars.next().unwrap()),
                '$' | '`' | ';' | '&' | '|' | '<' | '>' | '(' | ')' | '\n' | '*' | '?' => {
                    unreachable!("an active character in {command}")
                }
                c => words.last_mut().unwrap().push(c),
            }
        }
        words
    }
}
