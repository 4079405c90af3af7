//! Compares two independent parsers: tree-sitter must find the same command names and redirection targets as the main
//! parser.

use super::CommandRefusal;
use tree_sitter::{Node, Parser};

/// What tree-sitter finds in `text`. Runs first, because it handles any text and the main parser does not.
///
/// # Errors
/// `parse_error` if it cannot parse the text without error recovery.
pub fn look(text: &str) -> Result<ParserView, CommandRefusal> {
    let unreadable = || {
        CommandRefusal::new(
            "parse_error",
            "the command cannot be parsed unambiguously as bash",
            "check quotes and brackets; put `<<` of a here-document last on its line",
        )
    };
    let mut parser = Parser::new();
    parser
        .set_language(&tree_sitter_bash::LANGUAGE.into())
        .map_err(|_| unreadable())?;
    let mut tree = parser.parse(text, None).ok_or_else(unreadable)?;
    // Its grammar does not allow a here-string after another redirection (`cat > a <<< b`), but bash does. `<` has one
    // operand too, and the operand of a here-string is not collected as a target.
    let plain = text.replace("<<<", HERE_STRING);
    if tree.root_node().has_error() && plain != text {
        tree = parser.parse(&plain, None).ok_or_else(unreadable)?;
    }
    if tree.root_node().has_error() {
        return Err(unreadable());
    }
    let mut seen = ParserView::default();
    collect(tree.root_node(), text, &mut seen);
    Ok(seen)
}

/// Replaces the operator of a here-string; of the same length, so that positions do not change.
const HERE_STRING: &str = "<  ";

/// Compares the main parser's results with tree-sitter's.
///
/// # Errors
/// `parse_disagree`.
pub fn check(seen: &ParserView, names: &[String], targets: &[String]) -> Result<(), CommandRefusal> {
    let same = sorted(names, is_name) == sorted(&seen.names, is_name)
        && sorted(targets, is_file) == sorted(&seen.targets, is_file);
    if same {
        return Ok(());
    }
    Err(CommandRefusal::new(
        "parse_disagree",
        "two parsers read the command differently",
        "write it more plainly: one command per line, fewer quotes, `<<` of a here-document last on its line",
    ))
}

/// Command names and redirection targets, as written.
#[derive(Default)]
pub struct ParserView {
    names: Vec<String>,
    targets: Vec<String>,
}

/// One of the parsers does not treat tests as commands, and one treats `time` as a keyword.
fn is_name(name: &str) -> bool {
    !matches!(name, "[" | "[[" | "")
}

/// Whether it is a file and not a descriptor.
fn is_file(target: &str) -> bool {
    !target.trim_end_matches('-').bytes().all(|byte| byte.is_ascii_digit())
}

fn sorted(all: &[String], keep: fn(&str) -> bool) -> Vec<String> {
    let mut kept: Vec<String> = all
        .iter()
        .map(|text| text.replace("\\\n", ""))
        .filter(|text| keep(text))
        .collect();
    kept.sort();
    kept
}

fn collect(root: Node<'_>, text: &str, seen: &mut ParserView) {
    let source = |node: Node<'_>| node.utf8_text(text.as_bytes()).unwrap_or_default().to_owned();
    let mut open = vec![root];
    while let Some(node) = open.pop() {
        let mut cursor = node.walk();
        match node.kind() {
            "command" => seen.names.extend(name_of(node, &source)),
            "declaration_command" | "unset_command" => seen.names.push(source(node)),
            "file_redirect" if is_here_string(node, text) => {}
            "file_redirect" => {
                // Words after the target (`echo >&2 "text"`) are arguments, although tree-sitter attaches them to the
                // redirection.
                seen.targets.extend(
                    node.children_by_field_name("destination", &mut cursor)
                        .map(source)
                        .take(1),
                );
            }
            _ => {}
        }
        let mut cursor = node.walk();
        open.extend(node.children(&mut cursor));
    }
}

/// Whether a redirection has the operator of a here-string in the text as it was given.
fn is_here_string(redirect: Node<'_>, text: &str) -> bool {
    let mut cursor = redirect.walk();
    redirect.children(&mut cursor).any(|child| {
        child.kind() == "<"
            && text
                .get(child.start_byte()..)
                .is_some_and(|rest| rest.starts_with("<<<"))
    })
}

/// The name; after `time`, the word that is its command.
fn name_of(command: Node<'_>, source: &impl Fn(Node<'_>) -> String) -> Option<String> {
    let name = source(command.child_by_field_name("name")?);
    if name != "time" {
        return Some(name);
    }
    let mut cursor = command.walk();
    command
        .children_by_field_name("argument", &mut cursor)
        .map(source)
        .find(|word| !word.starts_with('-'))
}
