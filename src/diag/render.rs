//! Renders diagnostics as text: for terminals and logs, and as GitHub workflow commands. Pure.

use super::diagnostic::{Diagnostic, Label, Severity};
use super::source::{SourceFiles, Span};
use crate::base::secret;
use std::borrow::Cow;
use std::fmt::Write as _;

/// Length limit of a shown source line, in characters; of a longer line the part around the caret is shown.
const WIDTH: usize = 160;

/// One problem: `FILE:LINE:COLUMN: error[code]: message`, the line, a caret line, and `help: …`. Ends with a newline.
pub fn render(files: &SourceFiles, problem: &Diagnostic) -> String {
    let mut out = String::new();
    if let Some(span) = problem.span {
        let _ = write!(out, "{}: ", escape(&files.place(span).to_string()));
    }
    let _ = writeln!(
        out,
        "{}[{}]: {}",
        problem.severity.as_str(),
        problem.code,
        escape(&problem.message)
    );
    if let Some(span) = problem.span {
        snippet(&mut out, files, span, "^");
    }
    for Label { span, text } in &problem.labels {
        let _ = writeln!(
            out,
            "{}: note: {}",
            escape(&files.place(*span).to_string()),
            escape(text)
        );
        snippet(&mut out, files, *span, "-");
    }
    if let Some(help) = &problem.help {
        let _ = writeln!(out, "help: {}", escape(help));
    }
    out
}

/// All problems, one after the other.
pub fn render_all(files: &SourceFiles, problems: &[Diagnostic]) -> String {
    problems.iter().map(|problem| render(files, problem)).collect()
}

/// The workflow command that shows the problem beside the file on GitHub. One line, without a newline.
pub fn github(files: &SourceFiles, problem: &Diagnostic) -> String {
    let level = match problem.severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
    };
    let place = problem.span.map(|span| {
        let place = files.place(span);
        format!(
            "file={},line={},col={},",
            property(&place.file),
            place.line,
            place.column
        )
    });
    let help = problem.help.as_ref().map(|help| format!("\nhelp: {help}"));
    format!(
        "::{level} {}title={}::{}",
        place.unwrap_or_default(),
        property(problem.code),
        data(&format!("{}{}", problem.message, help.unwrap_or_default()))
    )
}

/// Escapes the message of a workflow command.
pub fn data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

/// Escapes a property of a workflow command.
pub fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}

fn snippet(out: &mut String, files: &SourceFiles, span: Span, mark: &str) {
    let (line, within) = files.line(span);
    let before = escape(line.get(..within.start).unwrap_or_default());
    let marked = escape(line.get(within.clone()).unwrap_or_default());
    let after = escape(line.get(within.end..).unwrap_or_default());
    let number = files.place(span).line.to_string();
    let blank = " ".repeat(number.len());
    let cut = before.chars().count().saturating_sub(WIDTH / 2);
    let whole = format!("{before}{marked}{after}");
    let is_cut = cut > 0 || whole.chars().count() > WIDTH;
    if is_cut && matches!(secret::start(line, usize::MAX), Cow::Owned(_)) {
        // The part that fits may begin or end within the secret.
        return;
    }
    let shown: String = whole.chars().skip(cut).take(WIDTH).collect();
    let indent = " ".repeat(before.chars().count() - cut);
    let length = marked.chars().count().clamp(1, WIDTH - indent.len().min(WIDTH - 1));
    let _ = writeln!(out, "{number} | {}", shown.trim_end());
    let _ = writeln!(out, "{blank} | {indent}{}", mark.repeat(length));
}

/// Shows control and bidirectional characters as `\u{…}` and a tab as one space, so that a file cannot control the
/// terminal.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\t' => out.push(' '),
            '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}' => {
                out.extend(character.escape_unicode());
            }
            character if character.is_control() => out.extend(character.escape_unicode()),
            character => out.push(character),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_line_snippet_caret_and_help() {
        let mut files = SourceFiles::new();
        let id = files.add("p.yaml", "rules:\n  - alow: x\n");
        let span = Span {
            file: id,
            start: 11,
            end: 15,
        };
        let problem = Diagnostic::error("unknown-key", span, "unknown key `alow`").help("did you mean `allow`?");
        assert_eq!(
            render(&files, &problem),
            "p.yaml:2:5: error[unknown-key]: unknown key `alow`\n2 |   - alow: x\n  |     ^^^^\nhelp: did you mean `allow`?\n"
        );
        assert_eq!(
            github(&files, &problem),
            "::error file=p.yaml,line=2,col=5,title=unknown-key::unknown key `alow`%0Ahelp: did you mean `allow`?"
        );
    }

    #[test]
    fn control_characters_are_shown_not_sent() {
        let mut files = SourceFiles::new();
        let id = files.add("a", "x: \u{1b}[31m\u{202e}y");
        let problem = Diagnostic::error("c", files.whole(id), "saw \u{7}");
        let text = render(&files, &problem);
        assert!(text.contains("\\u{1b}[31m\\u{202e}y"), "{text}");
        assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text}");
    }

    #[test]
    fn long_lines_are_cut_around_the_caret() {
        let mut files = SourceFiles::new();
        let id = files.add("a", format!("{}!{}", "a".repeat(500), "b".repeat(500)));
        let span = Span {
            file: id,
            start: 500,
            end: 501,
        };
        let text = render(&files, &Diagnostic::error("c", span, "m"));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[1].chars().nth(4 + 80), Some('!'));
        assert_eq!(lines[2].find('^'), Some(4 + 80));
        assert!(lines[1].len() <= WIDTH + 4);
    }

    #[test]
    fn a_problem_without_a_place_has_no_snippet() {
        let problem = Diagnostic::unplaced("unknown-parameter", "no parameter `x`");
        assert_eq!(
            render(&SourceFiles::new(), &problem),
            "error[unknown-parameter]: no parameter `x`\n"
        );
    }

    #[test]
    fn a_part_of_a_line_with_a_secret_is_not_shown() {
        let long = format!("{}!", "a".repeat(500));
        for reach in [0, WIDTH / 2, WIDTH] {
            crate::base::secret::check_cut(reach, |text| {
                let mut files = SourceFiles::new();
                let id = files.add("a", format!("{long}{text}"));
                let span = Span {
                    file: id,
                    start: 500,
                    end: 501,
                };
                render(&files, &Diagnostic::error("c", span, "m"))
            });
        }
    }
}
