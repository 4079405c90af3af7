//! Interprets redirections as reads and writes; here-documents and here-strings.

use super::scope::{CommandWalk, ShellState};
use super::unit::Unit;
use super::{CommandRefusal, FileUse, place, units, words};
use crate::base::access::PathStatus;
use brush_parser::ast::{IoFileRedirectKind, IoFileRedirectTarget, IoHereDocument, IoRedirect};

/// The effects of one command's redirections.
#[derive(Default)]
pub struct Redirects {
    pub reads: Vec<FileUse>,
    pub writes: Vec<FileUse>,
    /// Whether they set standard input.
    pub input: bool,
    /// Whether the last of them that sets standard input gives a file or a text to read: `/dev/null` and a directory do not.
    pub given: Option<bool>,
    /// Whether standard output goes to a file.
    pub output: bool,
}

/// Interprets the redirections in order.
///
/// # Errors
/// `redirect_opaque` for an unknown target, and refused constructs.
pub fn all(walk: &mut CommandWalk<'_>, state: &ShellState, list: &[&IoRedirect]) -> Result<Redirects, CommandRefusal> {
    let mut found = Redirects::default();
    for redirect in list {
        match redirect {
            IoRedirect::File(fd, kind, target) => file(walk, state, &mut found, fd.unwrap_or(-1), kind, target)?,
            IoRedirect::HereDocument(fd, document) => {
                found.input = true;
                found.give(fd.unwrap_or(0), true);
                body(walk, state, document)?;
            }
            IoRedirect::HereString(fd, word) => {
                found.input = true;
                found.give(fd.unwrap_or(0), true);
                words::evaluate_one(walk, state, &word.value)?;
            }
            IoRedirect::OutputAndError(word, _) => {
                found.output = true;
                let uses = target(walk, state, &word.value)?;
                found.writes.extend(uses);
            }
        }
    }
    Ok(found)
}

impl Redirects {
    fn give(&mut self, fd: i32, is_given: bool) {
        if fd <= 0 {
            self.given = Some(is_given);
        }
    }
}

fn file(
    walk: &mut CommandWalk<'_>,
    state: &ShellState,
    found: &mut Redirects,
    fd: i32,
    kind: &IoFileRedirectKind,
    to: &IoFileRedirectTarget,
) -> Result<(), CommandRefusal> {
    // What another descriptor leads to is not known; a file gives its text below.
    if !matches!(
        kind,
        IoFileRedirectKind::Write
            | IoFileRedirectKind::Append
            | IoFileRedirectKind::Clobber
            | IoFileRedirectKind::DuplicateOutput
    ) || fd == 0
    {
        found.give(fd, false);
    }
    let word = match to {
        IoFileRedirectTarget::Fd(_) => return Ok(()),
        IoFileRedirectTarget::ProcessSubstitution(..) => return Err(process_substitution()),
        IoFileRedirectTarget::Duplicate(word) => {
            let source = word.value.trim_end_matches('-');
            if source.bytes().all(|byte| byte.is_ascii_digit()) {
                walk.targets.push(word.value.clone());
                return Ok(());
            }
            word
        }
        IoFileRedirectTarget::Filename(word) => word,
    };
    let uses = target(walk, state, &word.value)?;
    match kind {
        IoFileRedirectKind::Read => {
            found.input |= fd <= 0;
            let is_file = |used: &FileUse| used.place.as_ref().is_some_and(|place| place.found != PathStatus::Dir);
            found.give(fd, !uses.is_empty() && uses.iter().all(is_file));
            found.reads.extend(uses);
        }
        IoFileRedirectKind::ReadAndWrite => {
            found.reads.extend(uses.iter().cloned());
            found.writes.extend(uses);
        }
        IoFileRedirectKind::DuplicateInput => found.reads.extend(uses),
        IoFileRedirectKind::Write
        | IoFileRedirectKind::Append
        | IoFileRedirectKind::Clobber
        | IoFileRedirectKind::DuplicateOutput => {
            found.output |= fd == 1 || fd == -1;
            found.writes.extend(uses);
        }
    }
    Ok(())
}

/// The refusal of process substitution, which passes a pipe to a program as if it were a file.
pub fn process_substitution() -> CommandRefusal {
    CommandRefusal::construct("<( )", "use a pipe")
}

fn target(walk: &mut CommandWalk<'_>, state: &ShellState, source: &str) -> Result<Vec<FileUse>, CommandRefusal> {
    walk.targets.push(source.to_owned());
    let word = words::evaluate_one(walk, state, source)?;
    let opaque = || {
        CommandRefusal::new(
            "redirect_opaque",
            format!("the target `{source}` of a redirection is not known before the command runs"),
            "write the file's name itself",
        )
    };
    let Some(text) = word.exact() else {
        return Err(opaque());
    };
    if text.starts_with("/dev/tcp") || text.starts_with("/dev/udp") || has_braces(source)? {
        return Err(opaque());
    }
    let mut uses = place::of_text(walk, state, text).ok_or_else(opaque)?;
    uses.iter_mut().for_each(|used| used.in_place = true);
    Ok(uses)
}

/// Whether a word has a brace that is not quoted, which bash would expand.
fn has_braces(source: &str) -> Result<bool, CommandRefusal> {
    let is_brace = |unit: &Unit| {
        matches!(
            unit,
            Unit::Char {
                value: '{',
                quoted: false
            }
        )
    };
    Ok(units::split(source)?.iter().any(is_brace))
}

fn body(walk: &mut CommandWalk<'_>, state: &ShellState, document: &IoHereDocument) -> Result<(), CommandRefusal> {
    walk.heredocs += 1;
    if document.requires_expansion {
        let split = units::split_body(&document.doc.value)?;
        words::resolve(walk, state, split)?;
    }
    Ok(())
}
