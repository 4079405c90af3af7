//! Matches a rule's command entry against a simple command: by known word prefixes for grants, by any possible value
//! for denials.

use super::place::system_name;
use super::spelling_match;
use super::unit::Unit;
use super::units::split;
use super::wrappers::LAUNCHERS;
use super::{CommandReach, CommandReading, CommandRefusal, Launch, ShellWord, Simple, WordKind};
use crate::policy::name_folding::tidy;

/// One word of a rule's `commands` entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PrefixWord {
    Text(String),
    /// A final `$`: no further words may follow.
    End,
}

/// Splits a rule's `commands` entry into plain words, which may be quoted.
///
/// # Errors
/// The problem as a sentence: an operator, an expansion or a pattern, or no word at all.
pub fn parse_prefix(entry: &str) -> Result<Vec<PrefixWord>, String> {
    if matches!(entry.trim(), "[" | "[[") {
        return Ok(vec![PrefixWord::Text(entry.trim().to_owned())]);
    }
    let mut words: Vec<(String, bool)> = Vec::new();
    let mut open = false;
    for unit in split(entry).map_err(|refusal| refusal.reason)? {
        match unit {
            Unit::Char {
                value: ' ' | '\t',
                quoted: false,
            } => open = false,
            Unit::Char { value, quoted } => {
                if !quoted && ";&|<>()`*?[]{}#\n".contains(value) {
                    return Err(format!(
                        "`{value}` is not allowed in a command prefix; quote it if it is literal text"
                    ));
                }
                if !open {
                    words.push((String::new(), false));
                    open = true;
                }
                if let Some((text, any_quoted)) = words.last_mut() {
                    text.push(value);
                    // The splitter reports a lone `$` as quoted; only the quotes in the source show whether it was.
                    *any_quoted |= quoted && value != '$';
                }
            }
            Unit::Nothing => {
                if !open {
                    words.push((String::new(), true));
                    open = true;
                }
            }
            _ => return Err("a command prefix consists of plain words, without expansions".to_owned()),
        }
    }
    let last = words.len().saturating_sub(1);
    let ends = last > 0 && words.last().is_some_and(|(text, quoted)| text == "$" && !quoted);
    let mut prefix: Vec<PrefixWord> = words.into_iter().map(|(text, _)| PrefixWord::Text(text)).collect();
    if ends {
        prefix.pop();
        prefix.push(PrefixWord::End);
    }
    match prefix.first() {
        Some(PrefixWord::Text(program)) if !program.is_empty() && program != "$" => Ok(prefix),
        _ => Err("a command prefix begins with a program's name".to_owned()),
    }
}

/// How an entry matches a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Match {
    /// How many words of the command itself the entry matches.
    pub end: usize,
    /// Whether the entry spells out the runner or the path that starts the program (`npx eslint`), not only the
    /// program.
    pub launch: bool,
}

/// Whether an allow entry covers the command: every word of the prefix is present, known and equal. Options that have
/// no effect according to the profile (`git --no-pager diff`) may be in between.
pub fn covers(prefix: &[PrefixWord], simple: &Simple) -> bool {
    best_match(prefix, simple, false).is_some()
}

/// The first objection of the profile that none of the entries which cover the command lifts: the entry that spells out
/// most of its words counts.
pub fn open_concern<'p, 's>(
    prefixes: impl Iterator<Item = &'p [PrefixWord]>,
    simple: &'s Simple,
) -> Option<&'s CommandRefusal> {
    // Most commands have none, and each rule of a policy asks.
    simple.concern()?;
    let spelled = prefixes.filter_map(|prefix| matched(prefix, simple)).max();
    simple.concern_from(spelled.unwrap_or(0))
}

/// How many words of the command the prefix matches; `None` if it does not cover the command.
pub fn matched(prefix: &[PrefixWord], simple: &Simple) -> Option<usize> {
    best_match(prefix, simple, false).map(|found| found.end)
}

/// How the entry covers the command: by the program's own words, or by how it is actually started. With `any` (`args:
/// any` on the rule) an entry that names only the runner covers whatever the runner starts.
pub(crate) fn best_match(prefix: &[PrefixWord], simple: &Simple, any: bool) -> Option<Match> {
    let own = || {
        let end = in_words(prefix, &simple.program, &simple.words, &simple.passed_over)?;
        let vouched = simple.launches.iter().all(|launch| launch.unvouched.is_none());
        vouched.then_some(Match { end, launch: false })
    };
    let launched = |launch: &Launch| {
        let end = in_words(prefix, &launch.program, &launch.words, &launch.passed_over)?;
        let spelled = end > launch.name_at;
        (spelled || launch.covered || any).then(|| Match {
            end: if spelled {
                end.saturating_sub(launch.skipped).max(1)
            } else {
                0
            },
            launch: true,
        })
    };
    let by_launch = simple
        .launches
        .iter()
        .filter_map(launched)
        .max_by_key(|found| found.end);
    match (own(), by_launch) {
        (Some(own), Some(launch)) if own.end >= launch.end && launch.end == 0 => Some(own),
        (own, launch) => launch.or(own),
    }
}

/// Why an entry that matches the program's own words does not cover the command.
pub(crate) fn unvouched<'a>(prefix: &[PrefixWord], simple: &'a Simple) -> Option<&'a super::CommandRefusal> {
    in_words(prefix, &simple.program, &simple.words, &simple.passed_over)?;
    simple.launches.iter().find_map(|launch| launch.unvouched.as_ref())
}

/// Whether the entry names the command's program, whatever its further words.
pub(crate) fn names_program(prefix: &[PrefixWord], simple: &Simple) -> bool {
    matches!(prefix.first(), Some(PrefixWord::Text(program)) if same_program(program, &simple.program))
}

/// How many of the words the prefix matches.
fn in_words(prefix: &[PrefixWord], identity: &str, words: &[ShellWord], passed_over: &[usize]) -> Option<usize> {
    let (PrefixWord::Text(program), rest) = prefix.split_first()? else {
        return None;
    };
    if !same_program(program, identity) {
        return None;
    }
    let from = |pass: bool| {
        let mut at = 1;
        for wanted in rest {
            while pass && passed_over.contains(&at) {
                at += 1;
            }
            match (wanted, words.get(at)) {
                (PrefixWord::End, None) => {}
                (PrefixWord::Text(text), Some(word)) if word.exact() == Some(text) => at += 1,
                _ => return None,
            }
        }
        Some(at)
    };
    from(false).or_else(|| from(true))
}

fn same_program(written: &str, program: &str) -> bool {
    // Every prefix of a policy comes here for every command, and nearly all are bare names.
    if !written.contains('/') {
        return written == program;
    }
    match system_name(written) {
        Some(name) => name == program,
        None if !written.starts_with('/') => format!("./{}", tidy(written)) == program,
        None => written == program,
    }
}

/// The most words that are examined in a command that is not understood; a longer one counts as a match for a denial.
const MAX_GUESSED: usize = 2000;

/// Whether a deny (or suspend) entry may match the command: also behind wrappers, under any path, where a word is
/// unknown, and in the operands of a program that may run them (`su -c 'rm x'`).
pub fn deny_covers(prefix: &[PrefixWord], simple: &Simple) -> bool {
    simple.reach == CommandReach::Anything
        || std::iter::once((&simple.words, simple.reach == CommandReach::Operands))
            .chain(
                simple
                    .wrapped
                    .iter()
                    .chain(launched(simple))
                    .map(|words| (words, false)),
            )
            .any(|(words, guess)| {
                let launcher = words.first().is_some_and(|word| LAUNCHERS.contains(&base(&word.text)));
                matches(prefix, words, Unknown::MayBeAnything)
                    || ((guess || launcher) && may_match_inside(prefix, words))
            })
        || simple
            .within
            .iter()
            .any(|words| matches(prefix, words, Unknown::MayBeAnything))
}

/// Whether the entry may match starting at any word, or within a word that may be a shell text.
fn may_match_inside(prefix: &[PrefixWord], words: &[ShellWord]) -> bool {
    let mut parts: Vec<ShellWord> = Vec::new();
    for word in words.iter().skip(1) {
        if word.kind != WordKind::Known {
            parts.push(word.clone());
            continue;
        }
        let in_name = |next: char| next.is_alphanumeric() || "_./-+".contains(next);
        let texts = word.text.split(|next| !in_name(next)).filter(|text| !text.is_empty());
        parts.extend(texts.map(ShellWord::known));
    }
    let first = words.iter().take(1).cloned();
    let parts: Vec<ShellWord> = first.chain(parts).collect();
    parts.len() > MAX_GUESSED || (0..parts.len()).any(|start| matches(prefix, &parts[start..], Unknown::MayBeAnything))
}

fn base(text: &str) -> &str {
    text.rsplit('/').next().unwrap_or(text)
}

/// What a word counts as that is unknown before the command runs.
#[derive(Clone, Copy)]
enum Unknown {
    /// As whatever is looked for.
    MayBeAnything,
    /// As something else.
    MatchesNothing,
}

impl Unknown {
    fn fits(self) -> bool {
        matches!(self, Self::MayBeAnything)
    }
}

/// Whether an entry matches these words, by any spelling that the program understands, also behind `python -m`.
fn matches(prefix: &[PrefixWord], words: &[ShellWord], unknown: Unknown) -> bool {
    let known: Vec<Option<&str>> = words.iter().map(ShellWord::exact).collect();
    let program = known.first().copied().flatten().map(base).unwrap_or_default();
    let modules: Vec<Vec<ShellWord>> = spelling_match::modules(program, &known)
        .into_iter()
        .map(|(name, behind)| {
            let rest = words.get(behind..).unwrap_or_default().iter().cloned();
            std::iter::once(ShellWord::known(&name)).chain(rest).collect()
        })
        .collect();
    let fits = |prefix: &[PrefixWord]| {
        matches_words(prefix, words, unknown) || modules.iter().any(|words| matches_words(prefix, words, unknown))
    };
    fits(prefix) || same_entries(prefix).iter().any(|prefix| fits(prefix))
}

/// The entry with its first words replaced by those of each command that means the same (`docker image push`).
fn same_entries(prefix: &[PrefixWord]) -> Vec<Vec<PrefixWord>> {
    let mut texts: Vec<&str> = Vec::new();
    for word in prefix {
        if let PrefixWord::Text(text) = word {
            texts.push(text);
        }
    }
    let same = spelling_match::same_commands(&texts)
        .into_iter()
        .map(|(replaced, words)| {
            let rest = prefix.iter().skip(replaced).cloned();
            words.into_iter().map(PrefixWord::Text).chain(rest).collect()
        });
    same.collect()
}

fn matches_words(prefix: &[PrefixWord], words: &[ShellWord], unknown: Unknown) -> bool {
    let Some((PrefixWord::Text(program), rest)) = prefix.split_first() else {
        return false;
    };
    let Some((first, words)) = words.split_first() else {
        return false;
    };
    if !first.exact().map_or(unknown.fits(), |text| {
        spelling_match::is_program(base(program), base(text))
    }) {
        return false;
    }
    let program = spelling_match::family(base(program));
    let texts: Vec<Option<&str>> = words.iter().map(ShellWord::exact).collect();
    if program == "git" && spelling_match::sets_commands(&texts) {
        return true;
    }
    let exact = has_dashes(rest);
    let rest_options = !exact && has_options(rest);
    let mut at = 0;
    let mut option: Option<&str> = None;
    for wanted in rest {
        let PrefixWord::Text(wanted) = wanted else {
            return spelling_match::is_end(rest_options, texts.get(at..).unwrap_or_default());
        };
        if spelling_match::is_option(wanted) && !exact {
            let options = spelling_match::place_of_options(program, &texts, at);
            if !spelling_match::has_option(program, options, wanted, unknown.fits()) {
                return false;
            }
            option = Some(wanted);
            continue;
        }
        match (after_word(program, wanted, words, at, unknown), option.take()) {
            (Some(next), _) => at = next,
            (None, Some(option))
                if spelling_match::has_value(
                    program,
                    spelling_match::place_of_options(program, &texts, at),
                    option,
                    wanted,
                ) => {}
            (None, _) => return false,
        }
    }
    true
}

/// The index after the wanted word, which is looked for from `at` on: behind options, words that may be their values, and
/// other targets.
fn after_word(program: &str, wanted: &str, words: &[ShellWord], at: usize, unknown: Unknown) -> Option<usize> {
    for (index, word) in words.iter().enumerate().skip(at) {
        let Some(text) = word.exact() else {
            return unknown.fits().then_some(index + 1);
        };
        if spelling_match::is_subcommand(program, wanted, text) {
            return Some(index + 1);
        }
        let before = index.checked_sub(1).map(|before| words[before].text.as_str());
        let is_passed = text.starts_with(['-', '+'])
            || before.is_some_and(|before| before.starts_with('-'))
            || spelling_match::chooses_place(program, before, text);
        if !is_passed && !spelling_match::has_targets(program) {
            return None;
        }
    }
    None
}

/// Whether the prefix has `--`; options after it belong to what the program passes on.
fn has_dashes(prefix: &[PrefixWord]) -> bool {
    prefix
        .iter()
        .any(|word| matches!(word, PrefixWord::Text(text) if text == "--"))
}

fn has_options(prefix: &[PrefixWord]) -> bool {
    prefix
        .iter()
        .any(|word| matches!(word, PrefixWord::Text(text) if spelling_match::is_option(text)))
}

/// Whether an entry matches the command by known words only: a suspend rule then suspends it before it starts, and a
/// deny rule denies it before it starts where programs are also judged at exec.
pub fn surely_covers(prefix: &[PrefixWord], simple: &Simple) -> bool {
    std::iter::once(&simple.words)
        .chain(&simple.wrapped)
        .chain(&simple.within)
        .chain(launched(simple))
        .any(|words| matches(prefix, words, Unknown::MatchesNothing))
}

/// The shell with its text (`bash -c TEXT`) by which an entry surely matches a command in that text, if the entry does
/// not match the command itself.
pub(crate) fn shell_around<'a>(prefix: &[PrefixWord], simple: &'a Simple) -> Option<&'a [ShellWord]> {
    let fits = |words: &&Vec<ShellWord>| matches(prefix, words, Unknown::MatchesNothing);
    let own = std::iter::once(&simple.words)
        .chain(&simple.wrapped)
        .chain(launched(simple));
    match own.into_iter().any(|words| fits(&words)) {
        true => None,
        false => simple.within.iter().find(fits).map(Vec::as_slice),
    }
}

/// The words with each runner still in front.
fn launched(simple: &Simple) -> impl Iterator<Item = &Vec<ShellWord>> {
    simple.launches.iter().map(|launch| &launch.words)
}

/// The words of each command, for the journal.
pub fn texts(reading: &CommandReading) -> Vec<Vec<String>> {
    reading
        .commands
        .iter()
        .map(|simple| simple.words.iter().map(|word| word.text.clone()).collect())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::corpus::FS_VIEW;
    use super::super::{CommandReading, Grants, read};
    use super::{covers, deny_covers, open_concern, parse_prefix, texts};

    fn reading(text: &str) -> CommandReading {
        read(text, "", &FS_VIEW, &Grants::default()).unwrap()
    }

    /// A deny rule matches every spelling of what it names; the control cases are different commands.
    #[test]
    fn denials_know_other_spellings() {
        for (entry, texts) in [
            (
                "sed -i",
                &[
                    "sed --in-place s/a/b/ f",
                    "sed --in-pl s/a/b/ f",
                    "sed -ni p f",
                    "sed -Ei p f",
                    "sed -i.bak p f",
                    "sed s/a/b/ -i f",
                ][..],
            ),
            (
                "rm -rf",
                &[
                    "rm -fr x",
                    "rm -r -f x",
                    "rm -rvf x",
                    "rm --recursive --force x",
                    "rm --rec -f x",
                    "rm x -rf",
                    "rm -Rf x",
                    "rm --r --f x",
                    "rm --r -f x",
                    "rm --recursive --f x",
                ],
            ),
            ("rm --recursive", &["rm --r x", "rm -R x"]),
            ("git tag -d", &["git tag --d v1", "git tag -d v1"]),
            (
                "tar -x",
                &[
                    "tar xf a.tar",
                    "tar xzf a.tgz",
                    "tar -zxf a.tgz",
                    "tar --extract -f a.tar",
                    "tar --get -f a.tar",
                    "tar --ex --file=a.tar",
                ],
            ),
            ("tar --get", &["tar x -f a.tar", "tar --extract -f a.tar"]),
            (
                "gh api -X",
                &["gh api --method POST x", "gh api x -XPOST", "gh api x --m=POST"],
            ),
            (
                "make deploy",
                &[
                    "make CC=x deploy",
                    "make clean deploy",
                    "make -j4 deploy",
                    "make deploy CC=x",
                    "make -C x all deploy",
                ],
            ),
            ("./gradlew publish", &["./gradlew clean publish"]),
            ("mvn deploy", &["mvn -q clean deploy"]),
            (
                "pip3 install",
                &["pip install x", "pip3.12 install x", "python3 -m pip install x"],
            ),
            ("python -c", &["python3 -c x", "python3.12 -c x"]),
            (
                "git push --force",
                &[
                    "git push origin --force",
                    "git push -f",
                    "git push -uf origin x",
                    "git push --forc",
                    "git push -- origin +main",
                    "git push --force-with-lease",
                    "git push --force-w=main origin main",
                    "git push --mirror",
                    "git send-pack --force origin main",
                ],
            ),
            (
                "git push -f",
                &["git push origin -f", "git push --force", "git push --mirr"],
            ),
            (
                "git push --mirror",
                &["git push --mirr x", "git push --m", "git send-pack --mirror x"],
            ),
            ("git push --prune", &["git push --pru x", "git push --mirror"]),
            (
                "git branch -D",
                &[
                    "git branch x -D",
                    "git branch -d -f x",
                    "git branch --delete --force x",
                    "git branch -fD x",
                ],
            ),
            ("git commit --amend", &["git commit -m x --amend", "git commit --am"]),
            (
                "pip install",
                &[
                    "python3 -Im pip install x",
                    "python3 -Impip install x",
                    "python3 -W ignore -m pip install x",
                    "python3 -m pip.__main__ install x",
                    "pip3 install x",
                    "pip3.11 --quiet install x",
                ],
            ),
            ("cargo publish", &["cargo +nightly publish", "cargo -q publish"]),
            ("npm install", &["npm i x", "npm inst x", "npm add x", "npm --silent i"]),
            (
                "npm publish",
                &[
                    "npm publ",
                    "npm pu",
                    "npm --silent publish",
                    "npm stage publish",
                    "yarn npm publish",
                ],
            ),
            (
                "npm run",
                &[
                    "npm runScript x",
                    "npm run-script x",
                    "npm rum x",
                    "npm urn x",
                    "npm run-s x",
                ],
            ),
            ("npm run test", &["npm test", "npm t", "npm tst"]),
            ("npm test", &["npm run test", "npm it", "npm cit"]),
            (
                "npm install",
                &["npm it", "npm install-test", "npm installTest", "npm install-t"],
            ),
            (
                "npm ci",
                &[
                    "npm clean-install",
                    "npm cleanInstall",
                    "npm ic",
                    "npm install-clean",
                    "npm isntall-clean",
                    "npm cit",
                    "npm sit",
                    "npm install-ci-test",
                    "npm clean-install-test",
                ],
            ),
            ("npm dist-tag", &["npm distTag add x", "npm dist-tags ls"]),
            (
                "pnpm publish",
                &[
                    "pnpm -r publish",
                    "pnpm recursive publish",
                    "pnpm multi publish",
                    "pnpm m publish",
                ],
            ),
            (
                "pnpm run deploy",
                &[
                    "pnpm run '/^dep/'",
                    "pnpm '/^dep/'",
                    "pnpm run '/.*loy$/'",
                    "pnpm run '/^(deploy|x)$/'",
                    "pnpm deploy",
                    "pnpm -r run deploy",
                    "pnpm recursive run deploy",
                ],
            ),
            ("yarn run deploy", &["yarn deploy", "yarn workspaces run deploy"]),
            ("yarn deploy", &["yarn run deploy", "yarn workspace a run deploy"]),
            ("pnpm deploy", &["pnpm run deploy", "pnpm -r run deploy"]),
            ("bun deploy", &["bun run deploy"]),
            ("npm run deploy", &["npm run-script deploy"]),
            (
                "yarn npm publish",
                &[
                    "yarn workspaces foreach -A npm publish",
                    "yarn workspace a npm publish",
                    "yarn publish",
                ],
            ),
            ("cargo run", &["cargo r", "cargo +stable r"]),
            (
                "docker run --privileged",
                &[
                    "docker run -it --privileged=true x",
                    "docker run x --privileged",
                    "docker run --priv x",
                ],
            ),
            (
                "curl -X",
                &["curl -sXPOST y", "curl --request POST y", "curl y -X POST"],
            ),
            (
                "go test -exec",
                &["go test -exec=x", "go test --exec x", "go test ./... -exec x"],
            ),
            ("git status -s $", &["git status -s"]),
            ("find -delete", &["find . -name x -delete"]),
            (
                "node -e",
                &[
                    "node --eval x",
                    "node --eval=x",
                    "node -p x",
                    "node --print x",
                    "node -pe x",
                    "nodejs -e x",
                    "node20 -r ./a -e x",
                ],
            ),
            ("node --eval", &["node -e x", "nodejs -p x"]),
            ("bun -e", &["bun --eval x", "bun -p x"]),
            ("deno run --allow-all", &["deno run -A x.ts"]),
            ("perl -e", &["perl -E x", "perl -ne x", "perl5.36.0 -E x"]),
            ("php -r", &["php --run x", "php8.2 -r x"]),
            ("ruby -e", &["ruby3.2 -ne x"]),
            (
                "docker push",
                &["docker image push x", "docker --context c image push x"],
            ),
            (
                "docker image push",
                &["docker push x", "podman image push x && docker push x"],
            ),
            ("docker rm", &["docker container rm x", "docker container remove -f x"]),
            ("docker rmi -f", &["docker image rm --force x"]),
            ("docker run --privileged", &["docker container run -it --privileged x"]),
            ("docker ps", &["docker container ls", "docker container list"]),
            ("docker compose up", &["docker-compose up -d", "docker-compose -f x up"]),
            ("npx", &["npm exec x", "npm x y"]),
            ("npm exec", &["npx x"]),
            ("npm i", &["npm install x", "npm isntall x"]),
            ("npm uninstall", &["npm remov x"]),
            ("npm config set", &["npm set a b", "npm c set a b"]),
            ("pnpm dlx", &["pnpx x"]),
            (
                "yarn publish",
                &["yarn workspace a publish", "yarn --silent workspace a publish"],
            ),
            ("uvx", &["uv tool run x"]),
            ("git push --force", &["git push origin +main"]),
            (
                "git push -d",
                &[
                    "git push origin :main",
                    "git push --delete origin main",
                    "git push -- origin :main",
                    "git push --prune origin",
                ],
            ),
            ("git add", &["git stage ."]),
            ("git remote remove", &["git remote rm origin"]),
            (
                "git reset --hard",
                &[
                    "git -c alias.p=push p",
                    "git -c ALIAS.p='reset --hard' p",
                    "git --no-pager -c a.b=c -c include.path=src/a.txt x",
                    "git --config-env=alias.p=HOME p",
                    "git -C src -c includeIf.onbranch:x.path=y p",
                ],
            ),
            (
                "rm",
                &[
                    "busybox rm x",
                    "toybox rm -rf x",
                    "coreutils --coreutils-prog=rm x",
                    "rustup run stable rm x",
                    "busybox sh -c 'rm x'",
                    "busybox env rm x",
                ],
            ),
            (
                "curl -X POST",
                &[
                    "curl -sXPOST y",
                    "curl --request=POST y",
                    "curl --request POST y",
                    "curl y -X POST",
                ],
            ),
            ("curl -d", &["curl --data-raw x y", "curl --json x y"]),
            (
                "terraform destroy",
                &[
                    "terraform apply -destroy -auto-approve",
                    "tofu --help; terraform apply --destroy",
                ],
            ),
            ("terraform apply --auto-approve", &["terraform apply -auto-approve"]),
            (
                "kubectl delete namespace",
                &[
                    "kubectl delete ns x",
                    "kubectl delete namespaces x",
                    "kubectl delete ns/x",
                    "kubectl -n a delete pods,ns x",
                ],
            ),
            ("kubectl apply -f", &["kubectl apply --filename=x"]),
            ("helm uninstall", &["helm delete x", "helm -n a un x"]),
            ("gh pr list", &["gh pr ls"]),
            ("psql -c", &["psql --command=x"]),
            ("gcc -o", &["gcc-13 -o x y.c"]),
            ("make -f", &["gmake --makefile x", "make --file=x"]),
        ] {
            for text in texts {
                assert!(denies(entry, text), "{entry}: {text}");
            }
        }
        for (entry, texts) in [
            (
                "sed -i",
                &["sed -n p f", "sed -e s/i/x/ f", "sed -- -i", "sed --quiet p f"][..],
            ),
            ("rm -rf", &["rm -f x", "rm -r x", "rm -- -rf", "rm x"]),
            (
                "git push --force",
                &[
                    "git push",
                    "git push -u origin x",
                    "git push --follow-tags",
                    "git push -- origin main",
                    "git push --prune origin",
                ],
            ),
            ("git -c", &["git log -c", "git grep -c x", "git commit -m -c"]),
            ("bash -c", &["bash x.sh -c", "bash -n x.sh"]),
            (
                "pip install",
                &["python3 -m pytest install", "python3 m.py pip install", "pip list"],
            ),
            ("npm install", &["npm test", "npm info x", "npm ci", "npm outdated"]),
            ("npm ci", &["npm install", "npm i"]),
            ("npm install-test", &["npm install", "npm test"]),
            ("npm publish", &["npm pack", "npm run publish-docs", "npm prune"]),
            ("npm run deploy", &["npm run dep", "npm test", "npm run build"]),
            (
                "pnpm run deploy",
                &["pnpm run '/^build/'", "pnpm run test", "pnpm run '/^x.*y$/'"],
            ),
            ("pnpm publish", &["pnpm recursive list", "pnpm -r test"]),
            ("yarn npm publish", &["yarn workspaces list", "yarn npm info x"]),
            ("cargo run", &["cargo test", "cargo rustc"]),
            ("helm upgrade --force", &["helm upgrade -f values.yaml web x"]),
            ("git status $", &["git status -s"]),
            ("find -exec", &["find . -executable"]),
            (
                "tar -x",
                &["tar cf x.tar src", "tar -tf x.tar", "tar --create -f x.tar src"],
            ),
            ("make deploy", &["make", "make DEPLOY=1 all", "make deployment"]),
            ("pip install", &["pipx install x", "pip-compile install"]),
            ("gh api -X", &["gh api x", "gh api --paginate x"]),
            (
                "node -e",
                &["node x.js -e", "node --check x.js", "node --env-file=.e x.js"],
            ),
            ("perl -e", &["perl -c x.pl", "perl x.pl -e"]),
            ("php -r", &["php x.php -r", "php -l x.php"]),
            (
                "docker push",
                &["docker pull push", "docker image ls", "docker image inspect push"],
            ),
            ("docker rm", &["docker image rm x", "docker run --rm x"]),
            ("npx", &["npm test", "npm run exec"]),
            ("git push --force", &["git push origin main:x", "git log +x"]),
            (
                "git push",
                &[
                    "git -c color.ui=never log",
                    "git log -c alias.x",
                    "git log --grep alias.x",
                ],
            ),
            ("rm", &["busybox ls x", "rustup show", "busybox"]),
            ("curl -X POST", &["curl -X GET y", "curl --request=GET y", "curl y"]),
            ("terraform destroy", &["terraform apply", "terraform plan -destroy"]),
            ("kubectl delete namespace", &["kubectl delete pod ns", "kubectl get ns"]),
            ("yarn publish", &["yarn workspace a test", "yarn run publish"]),
            ("yarn deploy", &["yarn run test", "yarn test", "npm run deploy"]),
            ("gcc -o", &["gcc-ar -o x"]),
        ] {
            for text in texts {
                assert!(!denies(entry, text), "{entry}: {text}");
            }
        }
    }

    fn allows(entry: &str, text: &str) -> bool {
        let prefix = parse_prefix(entry).unwrap();
        reading(text)
            .commands
            .iter()
            .all(|simple| simple.state_only || covers(&prefix, simple))
    }

    fn denies(entry: &str, text: &str) -> bool {
        let prefix = parse_prefix(entry).unwrap();
        reading(text).commands.iter().any(|simple| deny_covers(&prefix, simple))
    }

    #[test]
    fn a_prefix_matches_whole_known_words() {
        assert!(allows("cargo test", "cargo test --lib"));
        assert!(allows("cargo test", "timeout 5 'cargo' \"te\"st"));
        assert!(allows("git diff", "git --no-pager diff"));
        assert!(allows("npm test", "npm --loglevel silent -w a test"));
        assert!(allows("pnpm test", "pnpm -w --filter a -F b --reporter dot test"));
        assert!(allows("yarn test", "yarn --silent workspace a test"));
        assert!(allows("yarn workspace", "yarn workspace a test"));
        assert!(allows("ls", "/usr/bin/ls -l"));
        assert!(allows("./gradlew", "./gradlew build"));
        assert!(allows("scripts/lint.sh", "cd scripts && ./lint.sh"));
        assert!(allows("git status $", "git status"));
        assert!(!allows("git status $", "git status -s"));
        // The program runs another word: it takes no value there, or one that the rule's word would be.
        for text in [
            "npm --filter run --filter deploy test",
            "npm -F publish test",
            "npm --reporter exec test",
            "npm --stream publish test",
            "pnpm --workspace publish test",
            "pnpm --workspaces publish test",
            "yarn --color test deploy",
            "yarn --quiet test deploy",
            "yarn --loglevel silent test",
            "yarn -w a test",
            "yarn workspace --silent a test",
            "yarn workspace a run test",
        ] {
            let program = text.split(' ').next().unwrap();
            assert!(!allows(&format!("{program} test"), text), "{text}");
        }
        assert!(!allows("pnpm publish", "pnpm -w test publish"));
        assert!(allows("pnpm publish", "pnpm -w publish test"));
        assert!(allows("pytest", "uv -q run pytest"));
        assert!(allows("pytest", "uv --quiet run pytest") && allows("pytest", "uv -v run pytest"));
        assert!(allows("pytest", "poetry -q run pytest") && allows("pytest", "poetry -v run pytest"));
        assert!(!allows("pytest", "uv --directory x run pytest") && !allows("pytest", "poetry -C x run pytest"));
        assert!(!allows("cargo test", "cargo tests"));
        assert!(!allows("cargo test", "cargo \"$x\""));
        assert!(!allows("./gradlew", "cd src && ./gradlew"));
        assert!(!allows("cargo", "cargo test | tee x"));
    }

    #[test]
    fn a_denial_matches_what_may_be_meant() {
        for text in [
            "rm x",
            "/bin/rm x",
            "timeout 5 rm x",
            "sudo rm x",
            "ls | xargs rm",
            "bash -c 'rm x'",
            "./rm x",
            "su - root -c 'rm x'",
            "gdb -ex 'shell rm x'",
            "chrt 1 rm x",
            "find . -execdir rm {} +",
            "awk 'BEGIN{system(\"rm x\")}'",
            "bash --norc -c 'rm x'",
            "uv run rm x",
            "cat src/a.txt | bash",
            "bash <<< ls",
        ] {
            assert!(denies("rm", text), "{text}");
        }
        assert!(denies("git push", "git -C src push origin"));
        assert!(denies("git push", "git \"$x\""));
        assert!(denies("sudo", "sudo ls"));
        assert!(denies("cat $", "cat"));
        assert!(!denies("git push", "git log --grep push"));
        assert!(!denies("rm", "grep rm src/lib.rs"));
    }

    #[test]
    fn a_rule_that_spells_an_option_out_lifts_the_concern() {
        let pushed = reading("docker build --push .");
        let prefix = parse_prefix("docker build").unwrap();
        let concern = open_concern([prefix.as_slice()].into_iter(), &pushed.commands[0]).unwrap();
        assert_eq!(concern.code, "unknown_option:--push");
        let found = reading("go build -toolexec ./x");
        assert!(found.commands[0].concern().is_some());
        let open = |entry: &str| {
            let prefix = parse_prefix(entry).unwrap();
            open_concern([prefix.as_slice()].into_iter(), &found.commands[0]).is_some()
        };
        assert!(!open("go build -toolexec"));
        assert!(open("go build"));
    }

    #[test]
    fn prefixes_are_plain_words() {
        for entry in ["", "a; b", "a | b", "$x", "a $(b)", "a *", "'", "a > b", "$"] {
            assert!(parse_prefix(entry).is_err(), "{entry}");
        }
        assert_eq!(parse_prefix("git 'a b'").unwrap().len(), 2);
        assert_eq!(texts(&reading("ls -l | wc"))[0], ["ls", "-l"]);
    }
}
