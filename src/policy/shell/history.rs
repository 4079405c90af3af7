//! What a git command may show of the contents of files, now and in its history: nothing, only what lies at the paths that its
//! words name, or everything. Rules that are narrowed to paths need this: git takes most contents from its own objects, so no
//! path is opened that the kernel could judge.

use super::shown::{ShownHistory, ShownPlace};
use super::values::Pass;
use super::{FileUse, ShellWord, WordKind, may_be_long, option_name, place, short_group};
use crate::base::access::PathStatus;
use crate::policy::name_folding::tidy;

/// Other options of git before the subcommand whose value is the next word.
pub(super) const GLOBAL_OPTIONS_WITH_VALUE: [&str; 7] = [
    "-c",
    "--attr-source",
    "--config-env",
    "--git-dir",
    "--namespace",
    "--super-prefix",
    "--work-tree",
];

const NAME_PATHS: &str = "name the files or directories after `--`, as in `git log -p -- DIRECTORY/`";
const NAME_COMMIT: &str =
    "an identifier may be that of any file: write `REVISION:PATH`, or say that it is a commit: `ID^0 -- PATH`";
const NO_FOLLOW: &str =
    "leave out the options that reach other files than those after `--` (`--follow`, `--full-diff`, `-L`, `--stdin`)";
const NO_PLACE: &str = "use `git log`, `git show`, `git diff` or `git blame`, with the paths after `--`";
const NO_COPY: &str = "it copies every file of a revision to another place; leave `paths` out of the rule";
const PLAIN_PATHS: &str = "name the files or directories by plain paths after `--`, without `:` at the start";

/// Commands that show no contents of files, apart from the options in [`by_options`]. What they write in the tree is judged as
/// a write.
const SILENT_COMMANDS: [&str; 53] = [
    "add",
    "apply",
    "branch",
    "check-attr",
    "check-ignore",
    "check-mailmap",
    "check-ref-format",
    "checkout",
    "cherry",
    "cherry-pick",
    "clean",
    "column",
    "commit",
    "config",
    "count-objects",
    "describe",
    "fetch",
    "for-each-ref",
    "fsck",
    "gc",
    "hash-object",
    "help",
    "init",
    "ls-files",
    "ls-remote",
    "ls-tree",
    "merge",
    "merge-base",
    "mv",
    "name-rev",
    "notes",
    "pack-refs",
    "pull",
    "push",
    "rebase",
    "remote",
    "reset",
    "restore",
    "rev-parse",
    "revert",
    "rm",
    "shortlog",
    "show-branch",
    "show-ref",
    "sparse-checkout",
    "stage",
    "status",
    "submodule",
    "switch",
    "symbolic-ref",
    "tag",
    "version",
    "worktree",
];

/// Options of `git log` and its relatives that show no contents. Any other counts as one that does.
const SILENT_OPTIONS: [&str; 83] = [
    "--abbrev",
    "--abbrev-commit",
    "--after",
    "--all",
    "--all-match",
    "--ancestry-path",
    "--author",
    "--author-date-order",
    "--before",
    "--bisect",
    "--boundary",
    "--branches",
    "--cherry",
    "--cherry-mark",
    "--cherry-pick",
    "--children",
    "--color",
    "--committer",
    "--compact-summary",
    "--count",
    "--date",
    "--date-order",
    "--decorate",
    "--dense",
    "--diff-filter",
    "--dirstat",
    "--disk-usage",
    "--encoding",
    "--exclude",
    "--extended-regexp",
    "--find-renames",
    "--first-parent",
    "--fixed-strings",
    "--format",
    "--full-history",
    "--glob",
    "--graph",
    "--grep",
    "--header",
    "--invert-grep",
    "--left-only",
    "--left-right",
    "--log-size",
    "--mailmap",
    "--max-count",
    "--max-parents",
    "--merges",
    "--min-parents",
    "--name-only",
    "--name-status",
    "--no-abbrev-commit",
    "--no-color",
    "--no-commit-id",
    "--no-decorate",
    "--no-expand-tabs",
    "--no-mailmap",
    "--no-merges",
    "--no-notes",
    "--no-patch",
    "--no-renames",
    "--no-walk",
    "--not",
    "--numstat",
    "--objects",
    "--oneline",
    "--parents",
    "--perl-regexp",
    "--pretty",
    "--raw",
    "--regexp-ignore-case",
    "--relative-date",
    "--remotes",
    "--reverse",
    "--right-only",
    "--root",
    "--shortstat",
    "--skip",
    "--since",
    "--stat",
    "--summary",
    "--tags",
    "--topo-order",
    "--until",
];

/// Those without which `git show` shows contents.
const NAMES_ONLY: [&str; 11] = [
    "--compact-summary",
    "--dirstat",
    "--name-only",
    "--name-status",
    "--no-patch",
    "--numstat",
    "--raw",
    "--shortstat",
    "--stat",
    "--summary",
    "-s",
];

/// Options of `git log` and its relatives whose value is the next word, whatever that is.
const VALUED: [&str; 15] = [
    "--after",
    "--author",
    "--before",
    "--committer",
    "--date",
    "--grep",
    "--max-count",
    "--since",
    "--skip",
    "--until",
    "-G",
    "-O",
    "-S",
    "-n",
    "-l",
];

/// Options with which the paths after `--` do not bound what is shown.
const UNBOUNDED: [&str; 6] = [
    "--follow",
    "--full-diff",
    "--stdin",
    "--icase-pathspecs",
    "--pathspec-from-file",
    "--batch",
];

/// Options before the subcommand that leave it in the same repository.
const SAME_REPOSITORY: [&str; 9] = [
    "-C",
    "-c",
    "-P",
    "-v",
    "--help",
    "--literal-pathspecs",
    "--no-optional-locks",
    "--no-pager",
    "--no-replace-objects",
];

/// What the command of this pass, one of git, may show.
pub(super) fn shown(pass: &Pass<'_, '_>) -> ShownHistory {
    let words = pass.words;
    if pass.used.deferred.is_some() {
        // It is judged again when its words are known.
        return ShownHistory::Nothing;
    }
    if words.iter().any(|word| word.kind == WordKind::Unknown) {
        return ShownHistory::Everything(NAME_PATHS);
    }
    let (start, stays) = subcommand(words);
    let Some(name) = words.get(start).map(|word| word.text.as_str()) else {
        return ShownHistory::Nothing;
    };
    let rest = words.get(start + 1..).unwrap_or_default();
    let next = rest.first().map_or("", |word| word.text.as_str());
    let found = match name {
        name if name.starts_with('-') => ShownHistory::Nothing,
        "stash" | "reflog" if ["list", "show"].contains(&next) => compared(pass, "log", &rest[1..]),
        "stash" => by_options(rest, &["p"], None),
        "clone" => ShownHistory::Everything(NO_COPY),
        "worktree" if next == "add" => ShownHistory::Everything(NO_COPY),
        "commit" => by_options(rest, &["p", "v"], None),
        "status" => by_options(rest, &["v"], None),
        "add" | "stage" => by_options(rest, &["e", "i", "p"], None),
        "checkout" | "reset" | "restore" => restored(rest),
        "fetch" | "pull" | "push" | "tag" | "update-ref" => named(name, rest),
        "apply" if !checks(rest) => ShownHistory::Everything(NO_COPY),
        "notes" if !["", "list", "show", "remove", "prune"].contains(&next) => ShownHistory::Everything(NO_COPY),
        "config" => by_options(rest, &[], Some("--blob")),
        "rebase" => by_options(rest, &[], Some("--show-current-patch")),
        name if SILENT_COMMANDS.contains(&name) => ShownHistory::Nothing,
        "cat-file" => object(pass, rest),
        "grep" => searched(pass, rest),
        "blame" | "annotate" => annotated(pass, rest),
        "diff" | "diff-files" | "diff-index" | "diff-tree" | "difftool" | "format-patch" | "log" | "range-diff"
        | "reflog" | "rev-list" | "show" | "whatchanged" => compared(pass, name, rest),
        _ => ShownHistory::Everything(NO_PLACE),
    };
    match found {
        ShownHistory::Within(_) if !stays => ShownHistory::Everything(NO_PLACE),
        found => found,
    }
}

/// The index of the subcommand, and whether the options before it leave git in the same repository.
fn subcommand(words: &[ShellWord]) -> (usize, bool) {
    let mut at = 1;
    let mut stays = true;
    while let Some(word) = words.get(at).filter(|word| word.text.starts_with('-')) {
        let name = option_name(&word.text);
        if ["--version", "--help", "-v", "-h"].contains(&name) {
            break;
        }
        stays &= SAME_REPOSITORY.contains(&name);
        at += 1 + usize::from(name == "-C" || GLOBAL_OPTIONS_WITH_VALUE.contains(&word.text.as_str()));
    }
    (at, stays)
}

/// The words before `--`.
fn before_dashes(rest: &[ShellWord]) -> impl Iterator<Item = &str> {
    rest.iter()
        .map(|word| word.text.as_str())
        .take_while(|text| *text != "--")
}

/// A command that shows contents only with one of these short options, with the long one for the same, or with `further`.
fn by_options(rest: &[ShellWord], flags: &[&str], further: Option<&str>) -> ShownHistory {
    let long: &[&str] = &["--patch", "--interactive", "--edit", "--verbose"];
    let shows = |text: &str| {
        // What follows an option with a value is no option.
        let mut letters = short_group(text)
            .unwrap_or_default()
            .chars()
            .take_while(|flag| !"mFCctSu".contains(*flag));
        let is_flag = |option: &&&str| flags.iter().any(|flag| option.starts_with(&format!("--{flag}")));
        letters.any(|letter| flags.iter().any(|flag| flag.starts_with(letter)))
            || long.iter().filter(is_flag).any(|option| may_be_long(text, option))
            || further.is_some_and(|option| may_be_long(text, option))
    };
    match before_dashes(rest).any(shows) {
        true => ShownHistory::Everything("leave the option out that shows changes, and use `git diff -- PATH`"),
        false => ShownHistory::Nothing,
    }
}

/// A command that puts files of a revision into the tree. A tree that is not the top one of a commit would put other files
/// there.
fn restored(rest: &[ShellWord]) -> ShownHistory {
    // An operand, or the value of an option.
    fn source(text: &str) -> Option<&str> {
        match text.split_once('=') {
            Some((_, value)) => Some(value),
            None => (!text.starts_with('-')).then_some(text),
        }
    }
    let sources: Vec<&str> = before_dashes(rest).filter_map(source).collect();
    let has_paths = sources.len() > 1 || rest.iter().any(|word| word.text == "--");
    let is_odd = |text: &&str| text.contains(':') || text.contains("^{") || has_paths && !names_commits(text);
    match sources.iter().any(is_odd) {
        true => ShownHistory::Everything(NAME_COMMIT),
        false => by_options(rest, &["p"], None),
    }
}

/// A command that gives names to objects: with the name of a file's object, `git show NAME` would show that file.
fn named(name: &str, rest: &[ShellWord]) -> ShownHistory {
    // Elsewhere a colon stands between what is named and its name.
    let is_file = |text: &str| ["tag", "update-ref"].contains(&name) && text.contains(':');
    let takes_message = |word: &ShellWord| {
        let text = word.text.as_str();
        ["--message", "--file"].contains(&text)
            || text.starts_with('-') && !text.starts_with("--") && text.ends_with(['m', 'F'])
    };
    let mut operands = rest.iter();
    while let Some(word) = operands.next() {
        if takes_message(word) {
            operands.next();
        } else if !word.text.starts_with('-') && (is_file(&word.text) || !word.text.split(':').all(names_commits)) {
            return ShownHistory::Everything(NAME_COMMIT);
        }
    }
    match rest.iter().any(|word| word.text == "--stdin") {
        true => ShownHistory::Everything(NAME_COMMIT),
        false => ShownHistory::Nothing,
    }
}

/// Whether `git apply` only describes a patch, instead of copying files as it says.
fn checks(rest: &[ShellWord]) -> bool {
    const DESCRIBES: [&str; 4] = ["--check", "--stat", "--numstat", "--summary"];
    rest.iter().any(|word| DESCRIBES.contains(&word.text.as_str())) && !rest.iter().any(|word| word.text == "--apply")
}

/// Whether a revision certainly names commits, as the names of branches and tags do. An identifier may be that of a file, also
/// as `git describe` writes it (`v1-2-gabcdef`).
fn names_commits(revision: &str) -> bool {
    let of_one = |text: &str| {
        let text = text.trim_start_matches('^');
        let peeled = text.trim_end_matches(|next: char| next.is_ascii_digit());
        if text.ends_with("^{commit}")
            || peeled.ends_with(['^', '~'])
            || text.ends_with(['!', '@']) && text.contains('^')
        {
            return true;
        }
        let base = text.split(['^', '~', '@']).next().unwrap_or_default();
        let digits = base.rsplit_once("-g").map_or(base, |(_, digits)| digits);
        let is_id = digits.len() >= 4 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        !is_id && !text.contains("^{")
    };
    revision
        .split("..")
        .map(|text| text.trim_matches('.'))
        .filter(|text| !text.is_empty())
        .all(of_one)
}

/// The places of a path after `--`. `None` if git would take it for more than what lies there.
fn pathspec(pass: &Pass<'_, '_>, word: &ShellWord) -> Option<Vec<ShownPlace>> {
    if word.text.starts_with(':') {
        return None;
    }
    // A pattern of git may fit anything below its literal directory. The shell expands one that is not quoted, if it fits.
    let (dir, is_pattern) = match word.text.find(['*', '?', '[', '\\']) {
        Some(at) => {
            let before = word.text.get(..at).unwrap_or_default();
            (before.rsplit_once('/').map_or(".", |(dir, _)| dir), true)
        }
        None => (word.text.as_str(), false),
    };
    let dir = if dir.is_empty() { "/" } else { dir };
    let mut uses = place::of_text(pass.walk, pass.state, dir)?;
    if is_pattern {
        let as_dir = |used: &mut FileUse| used.place.iter_mut().for_each(|place| place.found = PathStatus::Dir);
        uses.iter_mut().for_each(as_dir);
    }
    Some(by_names(pass, dir, uses, true))
}

/// Places with the paths by which git knows them: it follows no link, so a path that leads through one is a place of its own in
/// the history.
fn by_names(pass: &Pass<'_, '_>, text: &str, uses: Vec<FileUse>, deep: bool) -> Vec<ShownPlace> {
    let dirs = pass.state.dirs.known().unwrap_or_default().iter();
    let names: Vec<String> = dirs
        .filter(|_| !text.starts_with('/'))
        .map(|dir| tidy(&place::join(dir, text)))
        .collect();
    let is_followed = |name: &&String| {
        let is_place = |used: &FileUse| used.place.as_ref().is_some_and(|place| place.path == **name);
        !uses.iter().any(is_place)
    };
    let own: Vec<FileUse> = names
        .iter()
        .filter(is_followed)
        .map(|name| FileUse::of_tree(name))
        .collect();
    let all = uses.into_iter().chain(own);
    all.map(|used| ShownPlace { used, deep }).collect()
}

/// Whether a word names something of the tree, so that git takes it for a path.
fn is_there(pass: &Pass<'_, '_>, word: &ShellWord) -> bool {
    let there = |used: &FileUse| {
        used.place
            .as_ref()
            .is_some_and(|place| place.found != PathStatus::Nothing)
    };
    word.kind == WordKind::Glob
        || word.text.contains(['*', '?', '['])
        || place::of_text(pass.walk, pass.state, &word.text).is_some_and(|uses| uses.iter().any(there))
}

/// The operands of a command that takes revisions and paths: options and their values are left out.
struct Operands<'a> {
    /// Revisions without a path.
    revisions: Vec<&'a ShellWord>,
    /// `REVISION:PATH`.
    files: Vec<&'a ShellWord>,
    paths: Vec<&'a ShellWord>,
}

impl Operands<'_> {
    fn name_commits(&self) -> bool {
        self.revisions.iter().all(|word| names_commits(&word.text))
    }

    /// The places of `REVISION:PATH`; `deep`: with all below a directory.
    fn places_of_files(&self, pass: &Pass<'_, '_>, deep: bool) -> Vec<ShownPlace> {
        let places = self.files.iter().flat_map(|word| file_of_revision(pass, word, deep));
        places.collect()
    }
}

fn operands<'a>(
    pass: &Pass<'_, '_>,
    rest: impl Iterator<Item = &'a ShellWord> + Clone,
    takes_next: impl Fn(&str) -> bool,
) -> Operands<'a> {
    let mut found = Operands {
        revisions: Vec::new(),
        files: Vec::new(),
        paths: Vec::new(),
    };
    let has_dashes = rest.clone().any(|word| word.text == "--");
    let is_magic = |text: &str| [":/", ":!", ":^", ":("].iter().any(|start| text.starts_with(start));
    let mut words = rest;
    while let Some(word) = words.next() {
        let text = word.text.as_str();
        if text == "--" {
            found.paths.extend(words);
            break;
        } else if text.starts_with('-') && text.len() > 1 {
            if takes_next(text) {
                words.next();
            }
        } else if is_magic(text) || !has_dashes && is_there(pass, word) {
            found.paths.push(word);
        } else if text.contains(':') {
            found.files.push(word);
        } else {
            found.revisions.push(word);
        }
    }
    found
}

/// The place of `REVISION:PATH`. Unless the path begins with a dot, git looks it up from the top of the repository.
fn file_of_revision(pass: &Pass<'_, '_>, word: &ShellWord, deep: bool) -> Vec<ShownPlace> {
    let places = place::of_revision(pass.walk, pass.state, &word.text).unwrap_or_default();
    places.into_iter().map(|used| ShownPlace { used, deep }).collect()
}

fn is_unbounded(text: &str) -> bool {
    UNBOUNDED.iter().any(|option| may_be_long(text, option))
}

/// Commands that show changes, and `git show`.
fn compared(pass: &Pass<'_, '_>, name: &str, rest: &[ShellWord]) -> ShownHistory {
    let options = || before_dashes(rest);
    let named = |text: &str, list: &[&str]| list.contains(&option_name(text));
    let found = operands(pass, rest.iter(), |text| VALUED.contains(&text));
    let is_silent = |text: &str| {
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        !text.starts_with('-')
            || named(text, &SILENT_OPTIONS)
            || [
                "-s", "-g", "-i", "-E", "-F", "-P", "-n", "-z", "-r", "-t", "-q", "--quiet", "-M",
            ]
            .contains(&text)
            || text
                .strip_prefix("-n")
                .or_else(|| text.strip_prefix('-'))
                .is_some_and(is_number)
    };
    // A value that begins with a dash counts as an option here, which is the stricter reading.
    let is_quiet = options().all(is_silent);
    let only_names = is_quiet && options().any(|text| named(text, &NAMES_ONLY));
    let shows = match name {
        "difftool" | "format-patch" | "range-diff" => true,
        "diff" | "diff-files" | "diff-index" => !only_names,
        "show" => !(only_names && found.files.is_empty() && found.name_commits()),
        _ => !is_quiet,
    };
    if !shows {
        return ShownHistory::Nothing;
    }
    if options().any(|text| is_unbounded(text) || text.starts_with("-L")) {
        return ShownHistory::Everything(NO_FOLLOW);
    }
    if options().any(|text| may_be_long(text, "--no-index") && text.len() > 5) {
        let paths = rest.iter().filter(|word| !word.text.starts_with('-'));
        return within(pass, paths.collect(), Vec::new());
    }
    let names_objects = ["diff", "diff-index", "diff-tree", "difftool", "show"].contains(&name);
    if names_objects && !found.name_commits() {
        return ShownHistory::Everything(NAME_COMMIT);
    }
    if found.files.iter().any(|word| place::range_of(&word.text).len() > 1) {
        return ShownHistory::Everything("write the two files as two words: `git diff REVISION:PATH REVISION:PATH`");
    }
    // A directory of a revision alone is compared with the whole tree.
    let bounds = match name {
        "show" => !found.files.is_empty(),
        _ => found.files.len() == 2,
    };
    if found.paths.is_empty() && !(bounds && found.revisions.is_empty()) {
        return ShownHistory::Everything(NAME_PATHS);
    }
    let files = found.places_of_files(pass, name != "show");
    within(pass, found.paths, files)
}

/// The places of paths, and further places.
fn within(pass: &Pass<'_, '_>, paths: Vec<&ShellWord>, more: Vec<ShownPlace>) -> ShownHistory {
    let mut places = more;
    let is_excluded = |word: &&&ShellWord| {
        [":!", ":^", ":(exclude)"]
            .iter()
            .any(|start| word.text.starts_with(start))
    };
    let given = paths.len();
    let kept: Vec<&ShellWord> = paths.iter().filter(|word| !is_excluded(word)).copied().collect();
    if given > 0 && kept.is_empty() {
        return ShownHistory::Everything(NAME_PATHS);
    }
    for word in kept {
        match pathspec(pass, word) {
            Some(found) => places.extend(found),
            None => return ShownHistory::Everything(PLAIN_PATHS),
        }
    }
    ShownHistory::Within(places)
}

/// `git cat-file`.
fn object(pass: &Pass<'_, '_>, rest: &[ShellWord]) -> ShownHistory {
    let texts = || rest.iter().map(|word| word.text.as_str());
    if texts().any(|text| ["-t", "-s", "-e"].contains(&text) || text.starts_with("--batch-check"))
        && !texts().any(|text| text == "-p")
    {
        return ShownHistory::Nothing;
    }
    if texts().any(|text| text.starts_with("--")) {
        return ShownHistory::Everything("name the file by its revision and path: `git show REVISION:PATH`");
    }
    let types = ["blob", "tree", "commit", "tag"];
    let named: Vec<&ShellWord> = rest
        .iter()
        .filter(|word| !word.text.starts_with('-') && !types.contains(&word.text.as_str()))
        .collect();
    let (files, others): (Vec<&ShellWord>, Vec<&ShellWord>) =
        named.into_iter().partition(|word| word.text.contains(':'));
    match others.iter().all(|word| names_commits(&word.text)) {
        true if files.is_empty() => ShownHistory::Nothing,
        true => ShownHistory::Within(
            files
                .into_iter()
                .flat_map(|word| file_of_revision(pass, word, false))
                .collect(),
        ),
        false => ShownHistory::Everything(NAME_COMMIT),
    }
}

/// The index of the first word that is neither an option nor the value of one.
fn first_operand(rest: &[ShellWord], takes_next: impl Fn(&str) -> bool) -> Option<usize> {
    let mut at = 0;
    loop {
        let text = rest.get(at)?.text.as_str();
        if text == "--" {
            return rest.get(at + 1).map(|_| at + 1);
        }
        if !text.starts_with('-') || text == "-" {
            return Some(at);
        }
        at += 1 + usize::from(takes_next(text));
    }
}

/// `git grep`, which searches below its own directory if no path is named.
fn searched(pass: &Pass<'_, '_>, rest: &[ShellWord]) -> ShownHistory {
    const LONG: [&str; 7] = [
        "--after-context",
        "--before-context",
        "--context",
        "--file",
        "--max-count",
        "--max-depth",
        "--threads",
    ];
    let takes_next = |text: &str| match short_group(text) {
        Some(letters) => letters.find(['e', 'f', 'A', 'B', 'C', 'm']) == Some(letters.len().saturating_sub(1)),
        None => LONG.contains(&text),
    };
    let gives_pattern = |text: &str| {
        may_be_long(text, "--file") || short_group(text).is_some_and(|letters| letters.contains(['e', 'f']))
    };
    // The first operand is the pattern, whatever it looks like.
    let pattern = match before_dashes(rest).any(gives_pattern) {
        true => None,
        false => first_operand(rest, takes_next),
    };
    let others = rest.iter().enumerate().filter(|(at, _)| Some(*at) != pattern);
    let found = operands(pass, others.map(|(_, word)| word), takes_next);
    if before_dashes(rest).any(is_unbounded) {
        return ShownHistory::Everything(NO_FOLLOW);
    }
    if !found.name_commits() {
        return ShownHistory::Everything(NAME_COMMIT);
    }
    let files = found.places_of_files(pass, true);
    if !found.paths.is_empty() || !files.is_empty() && found.revisions.is_empty() {
        return within(pass, found.paths, files);
    }
    match place::of_text(pass.walk, pass.state, ".") {
        Some(uses) => ShownHistory::Within(uses.into_iter().map(|used| ShownPlace { used, deep: true }).collect()),
        None => ShownHistory::Everything(NAME_PATHS),
    }
}

/// `git blame`: the file is the last operand, or the one that is there.
fn annotated(pass: &Pass<'_, '_>, rest: &[ShellWord]) -> ShownHistory {
    let valued =
        |text: &str| ["-L", "--date", "--contents", "--ignore-revs-file", "--ignore-rev", "-S"].contains(&text);
    let found = operands(pass, rest.iter(), valued);
    let files = found.places_of_files(pass, false);
    let paths = match found.paths.is_empty() {
        // None is there now, so any of them may be the file.
        true => found.revisions,
        false => found.paths,
    };
    match paths.is_empty() {
        true => ShownHistory::Everything(NAME_PATHS),
        false => within(pass, paths, files),
    }
}
