//! The directories whose files a command reads without naming them (`grep -r x docs`, `rg x`, `git grep x`), and what
//! lies below those that it removes, moves or fills.

use super::{CommandReading, ShownHistory, Simple, may_be_long, option_name, short_group};
use crate::base::access::{FsView, PathStatus, ResolvedPath};
use crate::base::grant::Starts;
use crate::policy::files::PathPattern;
use crate::policy::name_folding::fold_path;

/// Programs that show the names in a directory, but not what its files contain.
const LISTERS: [&str; 14] = [
    "[", "basename", "cd", "dirname", "du", "fd", "fdfind", "find", "ls", "readlink", "realpath", "stat", "test",
    "tree",
];

/// Programs that look only at a directory itself, or at the names in it, unless an option makes them descend.
const SHALLOW: [&str; 21] = [
    "[", "basename", "cat", "cd", "chmod", "dir", "dirname", "file", "head", "ls", "mkdir", "readlink", "realpath",
    "rmdir", "stat", "tail", "test", "touch", "vdir", "wc", "which",
];

/// Whether a command that is given a directory looks at what lies deeper than the names in it. What code of the tree reads is
/// not judged by operands, and of git, [`ShownHistory`] says it.
pub(crate) fn descends(simple: &Simple) -> bool {
    let program = simple.program.as_str();
    // The last of several counts for some programs, so each must be small.
    let is_flat = |option: &str| {
        let all: Vec<&str> = words(simple).collect();
        let mut depths = all
            .iter()
            .enumerate()
            .filter(|(_, word)| **word == option)
            .map(|(at, _)| all.get(at + 1));
        let is_small = |depth: Option<&&str>| depth.is_some_and(|depth| ["0", "1"].contains(depth));
        all.contains(&option) && depths.all(is_small)
    };
    match program {
        "git" | "echo" | "printf" | "pwd" => false,
        "find" => !is_flat("-maxdepth"),
        "tree" => !is_flat("-L"),
        "du" => !words(simple).any(|word| is_long(word, &["--summarize"]) || is_short(word, &['s'])),
        "grep" | "egrep" | "fgrep" => words(simple).any(makes_recursive),
        _ if simple.profiled && simple.runs_tree_code && simple.effect.starts == Starts::Anything => false,
        _ => {
            !SHALLOW.contains(&program)
                || words(simple).any(|word| is_long(word, &["--recursive"]) || is_short(word, &['R']))
        }
    }
}

/// Why a command that reads a directory, or a list of names, may read files anywhere in the tree.
pub(crate) fn leads_elsewhere(simple: &Simple) -> Option<&'static str> {
    let is_dir = |place: &ResolvedPath| place.found == PathStatus::Dir || place.path.is_empty();
    let mut places = simple.reads.iter().filter_map(|used| used.place.as_ref());
    if simple.program != "git" && lists_names(simple) {
        return Some("it reads the files that a list names");
    }
    let reads_dir = places.any(is_dir) || !searched_unnamed(simple).is_empty();
    let shows = !LISTERS.contains(&simple.program.as_str()) && descends(simple);
    (shows && reads_dir && follows(simple)).then_some("it follows links, wherever they lead")
}

/// The directories that a command reads as a whole: those among its operands, and the one in which it starts if it
/// searches and no operand names what.
pub(crate) fn searched(simple: &Simple) -> Vec<&str> {
    // What the tree's own code reads, which `make` and `pytest` run, cannot be judged by their operands.
    let runs_code = simple.profiled && simple.runs_tree_code && simple.effect.starts == Starts::Anything;
    if runs_code || LISTERS.contains(&simple.program.as_str()) {
        return Vec::new();
    }
    let is_dir = |place: &&ResolvedPath| place.inside && (place.found == PathStatus::Dir || place.path.is_empty());
    let places = simple.reads.iter().filter_map(|used| used.place.as_ref());
    let mut dirs: Vec<&str> = places.filter(is_dir).map(|place| place.path.as_str()).collect();
    if searches(simple) {
        dirs.extend(chosen(simple));
    }
    match &simple.shown {
        ShownHistory::Nothing => {}
        ShownHistory::Everything(_) => dirs.push(""),
        // What is not there now may have been a directory in a revision.
        ShownHistory::Within(places) => dirs.extend(
            places
                .iter()
                .filter(|shown| shown.deep)
                .filter_map(|shown| shown.used.place.as_ref())
                .filter(|place| place.inside && !matches!(place.found, PathStatus::File | PathStatus::HardLinked))
                .map(|place| place.path.as_str()),
        ),
    }
    // Where links lead, and which names a file lists, is known only when the command runs. What is not there now may be a
    // directory then.
    let mut places = simple.reads.iter().filter_map(|used| used.place.as_ref());
    let may_list = !dirs.is_empty() || places.any(|place| place.inside && place.found == PathStatus::Nothing);
    if may_list && follows(simple) || lists_names(simple) {
        dirs.push("");
    }
    dirs
}

/// The directories that a command searches, or whose names it lists, without naming them.
pub(crate) fn searched_unnamed(simple: &Simple) -> Vec<&str> {
    match searches(simple) || lists(simple) {
        true => chosen(simple),
        false => Vec::new(),
    }
}

/// The directories that a searching command chooses itself. Empty if an operand names what it searches.
fn chosen(simple: &Simple) -> Vec<&str> {
    // An unknown word may be the directory to search; the command is judged again when its words are known.
    if simple.deferred.is_some() || simple.asks_version || is_told_where(simple) || searches_input(simple) {
        return Vec::new();
    }
    match &simple.dirs {
        Some(starts) => starts.iter().map(String::as_str).collect(),
        None => vec![""],
    }
}

/// Whether rg searches its standard input: it does so if that is a pipe or a file, unless it may read patterns from it
/// (`-f -`) or lists files.
fn searches_input(simple: &Simple) -> bool {
    let takes_other = |word: &str| takes_file(word) || is_long(word, &["--files", "--type-list"]);
    simple.program == "rg" && simple.piped && !words(simple).any(takes_other)
}

/// If some words are known only at the exec, no command counts as having a pipe as its standard input: the judgement at
/// the exec cannot see the standard input, so it must not be the reason why a command is allowed.
pub(crate) fn forget_pipes(reading: &mut CommandReading) {
    if reading.commands.iter().any(|simple| simple.deferred.is_some()) {
        reading.commands.iter_mut().for_each(|simple| simple.piped = false);
    }
}

/// Whether the command lists the names in its current directory if its words name no place.
fn lists(simple: &Simple) -> bool {
    ["dir", "du", "fd", "fdfind", "find", "ls", "tree", "vdir"].contains(&simple.program.as_str())
}

/// Records which paths below the directories that commands search fit exceptions that may fit anywhere.
pub(crate) fn look_below(reading: &mut CommandReading, exceptions: &[&PathPattern], fs_view: &FsView<'_>) {
    if exceptions.is_empty() {
        return;
    }
    let fits = |path: &&String| {
        let folded = fold_path(path).join("/");
        exceptions.iter().any(|pattern| pattern.touches_file(path, &folded))
    };
    for simple in &mut reading.commands {
        let dirs: Vec<String> = searched(simple).into_iter().map(str::to_owned).collect();
        let look = |dir: String| {
            let found: Option<Vec<String>> =
                (fs_view.below)(&dir).map(|paths| paths.iter().filter(fits).cloned().collect());
            (dir, found)
        };
        simple.below = dirs.into_iter().map(look).collect();
    }
}

/// Programs that change no file below a directory but remove, move or fill it: what they touch lies there now, or is
/// found when the command has ended.
const MOVERS: [&str; 5] = ["cp", "git", "mv", "rm", "rmdir"];

/// Records which paths that rules restrict lie below the directories that commands remove, move or fill.
pub(crate) fn look_below_moved(reading: &mut CommandReading, restricted: &[&PathPattern], fs_view: &FsView<'_>) {
    let fits = |path: &&String| {
        let folded = fold_path(path).join("/");
        restricted.iter().any(|pattern| pattern.touches_file(path, &folded))
    };
    let moves = |simple: &&mut Simple| {
        let elsewhere = words(simple).any(|word| is_short(word, &['t']) || word.starts_with("--t"));
        MOVERS.contains(&simple.program.as_str()) && !elsewhere
    };
    let uses = reading.commands.iter_mut().filter(moves);
    for used in uses.flat_map(|simple| simple.writes.iter_mut()) {
        let Some(place) = used.place.as_ref() else { continue };
        let is_dir = place.inside && place.found == PathStatus::Dir;
        if is_dir && restricted.iter().any(|pattern| pattern.may_fit_below(&place.path)) {
            let found = (fs_view.below)(&place.path);
            used.below = found.map(|paths| paths.iter().filter(fits).cloned().collect());
        }
    }
}

/// Whether a directory that a command searches may hold a path that an exception fits.
pub(crate) fn may_hold(simple: &Simple, dir: &str, exception: &PathPattern) -> bool {
    let known = simple.below.iter().find(|(known, _)| known == dir);
    match known.and_then(|(_, paths)| paths.as_ref()) {
        Some(paths) if exception.fits_anywhere() => {
            let fits = |path: &String| exception.touches_file(path, &fold_path(path).join("/"));
            paths.iter().any(fits)
        }
        _ => exception.may_fit_below(dir),
    }
}

/// Whether a command that reads a directory reads what links in it lead to.
fn follows(simple: &Simple) -> bool {
    let (long, flags): (&[&str], &[char]) = match simple.program.as_str() {
        // These two follow links by default.
        "diff" => return !words(simple).any(|word| is_long(word, &["--no-dereference"])),
        "zip" => return !words(simple).any(|word| is_short(word, &['y'])),
        "grep" | "egrep" | "fgrep" => (&["--dereference-recursive"], &['R']),
        "ag" => (&["--follow"], &['f']),
        "tar" => (&["--dereference"], &['h']),
        "git" => return false,
        "rg" | "cp" | "rsync" => (&["--follow", "--dereference", "--copy-links"], &['L']),
        _ => (&["--follow", "--dereference"], &[]),
    };
    words(simple).any(|word| is_long(word, long) || is_short(word, flags))
}

/// Whether a file lists the names of the files that a command reads.
fn lists_names(simple: &Simple) -> bool {
    let short = |word: &str| match simple.program.as_str() {
        "sort" | "wc" => is_long(word, &["--files0-from"]),
        "tar" => is_long(word, &["--files-from"]) || is_short(word, &['T']),
        "git" => is_long(word, &["--pathspec-from-file"]),
        _ => false,
    };
    words(simple).any(|word| short(word) || word.starts_with("--files0-from") || word.starts_with("--files-from"))
}

/// Whether the command reads the directory in which it starts if its words name no place.
fn searches(simple: &Simple) -> bool {
    match simple.program.as_str() {
        "rg" | "ag" | "ack" => true,
        "ruff" => words(simple).any(|word| ["check", "format"].contains(&word)),
        "grep" | "egrep" | "fgrep" => words(simple).any(makes_recursive),
        _ => false,
    }
}

/// Whether an operand names what to search. A file of patterns does not, and a redirection is not among the words.
fn is_told_where(simple: &Simple) -> bool {
    if simple.profiled {
        return simple.names_place;
    }
    if words(simple).any(takes_file) {
        return false;
    }
    let mut places = simple.reads.iter().filter(|used| used.place.is_some());
    places.any(|used| words(simple).any(|word| word == used.asked))
}

fn words(simple: &Simple) -> impl Iterator<Item = &str> {
    simple.words.iter().skip(1).map(|word| word.text.as_str())
}

/// Whether an option of grep makes it search directories. Long options may be shortened.
fn makes_recursive(word: &str) -> bool {
    let long = ["--recursive", "--dereference-recursive", "--directories"];
    is_long(word, &long) || is_short(word, &['r', 'R', 'd'])
}

/// Whether an option takes patterns from a file.
fn takes_file(word: &str) -> bool {
    is_long(word, &["--file", "--ignore-file", "--exclude-from"]) || is_short(word, &['f'])
}

fn is_long(word: &str, options: &[&str]) -> bool {
    option_name(word) != "--exclude" && options.iter().any(|option| may_be_long(word, option))
}

fn is_short(word: &str, flags: &[char]) -> bool {
    short_group(word).is_some_and(|rest| rest.contains(flags))
}
