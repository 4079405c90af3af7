//! The tool `read_many_files`: returns the contents of several files in one result.

use super::args::{Args, invalid};
use super::builtin::{Builtin, OtherNames, ToolFacts, blocking};
use super::list_directory::{filter_of, filtering};
use super::page::page;
use super::read_file::MAX_FILE;
use super::results::{SHOWN, redacted};
use super::schema::{boolean, object, strings, undeclared};
use super::{PreparedCall, ToolContext, ToolError};
use crate::base::access::Access;
use crate::base::call::{ArgumentTarget, Display, Location, ToolEffects, ToolKind, ToolOutput};
use crate::base::content::{Media, ToolContent as Part};
use crate::base::quote::counted;
use crate::workspace::Workspace;
use crate::workspace::collect::{Collection, FileQuery, Item};
use crate::workspace::content::{FileContent, MAX_MEDIA, classify, media};
use crate::workspace::pattern::WorkspacePattern;
use crate::workspace::walk::Filter;
use std::sync::Arc;

/// Upper limit for the files of one call.
const MAX_FILES: usize = 500;

/// Upper limit for the listed names of files that did not fit.
const MAX_NAMES: usize = 50;

/// Excluded from directories and globs unless `useDefaultExcludes` is false.
const USUAL_EXCLUDES: [&str; 4] = [
    "**/node_modules/**",
    "**/bower_components/**",
    "**/__pycache__/**",
    "**/.svn/**",
];

/// Its name.
const NAME: &str = "read_many_files";

/// Defines the tool.
pub fn tool() -> Builtin {
    Builtin::new(
        &ToolFacts {
            name: NAME,
            display: "ReadManyFiles",
            aliases: &[],
            kind: ToolKind::Read,
            effects: ToolEffects::shows(ArgumentTarget::Patterns),
            other_names: OtherNames {
                renamed: &[("paths", "include")],
                settings: &["ReadManyFilesTool"],
                ..OtherNames::default()
            },
        },
        "Reads several text files at once, each under a line with its path. What finds no room within 40 kB is listed.",
        object(
            [
                ("include", strings("Paths, directories or globs (src/**/*.rs).")),
                ("exclude", strings("")),
                (
                    "useDefaultExcludes",
                    undeclared(boolean("Leave out node_modules and the like; true by default.")),
                ),
                (
                    "recursive",
                    undeclared(boolean(
                        "Accepted for older callers; directories and ** are always searched whole.",
                    )),
                ),
                ("file_filtering_options", undeclared(filtering())),
            ],
            &["include"],
        ),
        prepare,
    )
}

struct Job {
    /// `include` as given.
    asked: Vec<String>,
    include: Vec<WorkspacePattern>,
    exclude: Vec<WorkspacePattern>,
    filter: Filter,
}

fn prepare(args: &Args<'_>, workspace: &Arc<Workspace>) -> Result<PreparedCall, ToolError> {
    let include = args.list("include");
    if include.is_empty() || include.iter().any(|one| one.trim().is_empty()) {
        return Err(invalid(
            "`include` names nothing to read: write paths, directories or globs",
        ));
    }
    let parse = |name: &str, all: Vec<&str>| {
        all.into_iter()
            .map(|one| {
                WorkspacePattern::parse(workspace, "", one, true).map_err(|error| invalid(format!("`{name}`: {error}")))
            })
            .collect::<Result<Vec<_>, _>>()
    };
    let title = format!("read {}", include.join(", "));
    let asked = include.iter().map(|one| (*one).to_owned()).collect();
    let mut exclude = args.list("exclude");
    if args.flag("useDefaultExcludes", true) {
        exclude.extend(USUAL_EXCLUDES);
    }
    let job = Job {
        asked,
        include: parse("include", include)?,
        exclude: parse("exclude", exclude)?,
        filter: filter_of(args),
    };
    Ok(PreparedCall {
        title,
        access: Access {
            reads: job.include.iter().map(|pattern| pattern.start.clone()).collect(),
            ..Access::none()
        },
        preview: None,
        work: blocking(move |context| read(&job, context)),
    })
}

/// The result so far.
#[derive(Default)]
struct Read {
    text: String,
    media: Vec<Media>,
    media_bytes: u64,
    shown: Vec<String>,
    unshown: Vec<String>,
    skipped: Vec<String>,
}

fn read(job: &Job, context: &ToolContext) -> Result<ToolOutput, ToolError> {
    let workspace = &context.workspace;
    let stop = || context.cancel.is_cancelled();
    let wanted = FileQuery {
        include: &job.include,
        exclude: &job.exclude,
        filter: job.filter,
        tool: NAME,
        cap: MAX_FILES,
    };
    let found = workspace.collect(&wanted, &stop);
    if found.files.is_empty() {
        return Err(ToolError::model("file_not_found", nothing(job, &found)));
    }
    let mut read = Read::default();
    for item in &found.files {
        if stop() {
            return Err(ToolError::model("cancelled", "the run is ending"));
        }
        read.one(item, context);
    }
    Ok(read.finish(&found))
}

impl Read {
    fn one(&mut self, item: &Item, context: &ToolContext) {
        let workspace = &context.workspace;
        let path = &item.place.path;
        let room = SHOWN.saturating_sub(self.text.len() + path.len() + 4_000);
        let bytes = match workspace.read(&item.place, MAX_FILE) {
            Ok(bytes) => bytes,
            Err(error) => return self.skipped.push(format!("{path}: {error}")),
        };
        match classify(path, &bytes) {
            FileContent::Text(_) if room == 0 => self.unshown.push(path.clone()),
            FileContent::Text(text) => match page(&redacted(text.as_str(), context), None, None, room) {
                // A page always has at least one line, even if it exceeds `room`; here such a file is left for another
                // call.
                Ok(page) if page.text.len() > room => self.unshown.push(path.clone()),
                Ok(page) => {
                    workspace.note_read(path, &bytes);
                    self.shown.push(path.clone());
                    self.text
                        .push_str(&format!("--- {path} ---\n\n{}\n\n", page.text.trim_end_matches('\n')));
                }
                Err(error) => self.skipped.push(format!("{path}: {error}")),
            },
            FileContent::Media(mime) if item.named => {
                let size = bytes.len() as u64;
                if self.media_bytes + size > MAX_MEDIA {
                    return self.skipped.push(format!("{path}: no room for {size} bytes of {mime}"));
                }
                self.media_bytes += size;
                self.shown.push(path.clone());
                self.text
                    .push_str(&format!("--- {path} ({mime}, shown beside this text) ---\n\n"));
                self.media.push(media(path, mime, &bytes));
            }
            FileContent::Media(mime) => self.skipped.push(format!("{path}: {mime}, name it to see it")),
            FileContent::Binary(_) => self.skipped.push(format!("{path}: binary")),
        }
    }

    fn finish(self, found: &Collection) -> ToolOutput {
        let mut text = self.text;
        text.push_str("--- End of content ---");
        let mut note = |what: &str, names: &[String]| {
            if !names.is_empty() {
                let rest = names.len().saturating_sub(MAX_NAMES);
                let shown = names.get(..names.len() - rest).unwrap_or_default().join(", ");
                let more = if rest > 0 {
                    format!(" and {rest} more")
                } else {
                    String::new()
                };
                text.push_str(&format!("\n[{what}: {shown}{more}]"));
            }
        };
        note("did not fit here, read_file shows them", &self.unshown);
        note("not shown", &self.skipped);
        note("nothing matches", &found.missing);
        if found.cut {
            text.push_str(&format!("\n[more than {MAX_FILES} files; narrow the patterns]"));
        }
        if found.withheld > 0 {
            text.push_str(&format!(
                "\n[{} withheld by the policy]",
                counted(found.withheld, "file")
            ));
        }
        let summary = format!(
            "{} read, {} not shown",
            counted(self.shown.len(), "file"),
            self.unshown.len() + self.skipped.len()
        );
        let mut output = ToolOutput {
            display: Display::Text { text: summary.clone() },
            content: vec![Part::text(text)],
            summary,
            ..ToolOutput::default()
        };
        output.content.extend(self.media.into_iter().map(Part::Media));
        output.locations = self
            .shown
            .into_iter()
            .map(|path| Location { path, line: None })
            .collect();
        output
    }
}

fn quoted(names: &[String]) -> String {
    names
        .iter()
        .map(|name| format!("`{name}`"))
        .collect::<Vec<_>>()
        .join(", ")
}

/// Why there is no file to read.
fn nothing(job: &Job, found: &Collection) -> String {
    let missing = || format!("no file matches {}", quoted(&found.missing));
    let withheld = || format!("{} withheld by the policy", counted(found.withheld, "file"));
    match found.missing.is_empty() {
        false if found.withheld > 0 => format!("{}; {}", missing(), withheld()),
        false => missing(),
        true if found.withheld > 0 => format!("nothing of {} may be read: {}", quoted(&job.asked), withheld()),
        true => format!(
            "every file of {} is ignored or excluded; read_file reads one by its name, and useDefaultExcludes: false \
             turns the usual excludes off",
            quoted(&job.asked)
        ),
    }
}
