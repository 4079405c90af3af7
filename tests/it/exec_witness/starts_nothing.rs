//! Programs that may start nothing, and every way in which they would: none of it runs. Beside each, an honest use that does.

use super::super::harness::have;
use super::{CONFINED, House, Recorder};
use std::process::Command;

struct Way {
    name: &'static str,
    /// Needs this program; left out where it is not installed and nothing is required.
    needs: &'static str,
    attack: &'static str,
    honest: &'static str,
}

const fn way(name: &'static str, needs: &'static str, attack: &'static str, honest: &'static str) -> Way {
    Way {
        name,
        needs,
        attack,
        honest,
    }
}

const WAYS: &[Way] = &[
    way("sed e", "sed", "sed 'e touch pwned' lib.sh", "sed -n 1p lib.sh"),
    way(
        "sed s///e",
        "sed",
        "echo touch pwned | sed 's/^/ /e'",
        "echo a | sed 's/a/b/'",
    ),
    way(
        "awk system",
        "awk",
        "awk 'BEGIN { system(\"touch pwned\") }'",
        "awk 'BEGIN { print 1 }'",
    ),
    way(
        "awk output pipe",
        "awk",
        "awk 'BEGIN { print 1 | \"touch pwned\" }'",
        "awk '{ print $1 }' lib.sh",
    ),
    way(
        "awk input pipe",
        "awk",
        "awk 'BEGIN { \"touch pwned\" | getline x }'",
        "awk 'BEGIN { getline x < \"lib.sh\"; print x }'",
    ),
    way(
        "tar checkpoint",
        "tar",
        "tar cf /dev/null --checkpoint=1 --checkpoint-action=exec='touch pwned' lib.sh",
        "tar cf /dev/null lib.sh",
    ),
    way(
        "tar compressor",
        "tar",
        "tar cf x.tar --use-compress-program=./evil lib.sh",
        "tar cf x.tar lib.sh && tar tf x.tar",
    ),
    way(
        "sort",
        "sort",
        "seq 200000 | sort -S 32k --compress-program=./evil >/dev/null",
        "seq 200000 | sort -S 32k | tail -n1",
    ),
    way("a search program's preprocessor", "rg", "aux/rg './evil'", "aux/rg"),
    way(
        "git external diff",
        "git",
        "cd repo && git -c diff.external=../evil diff",
        "cd repo && git diff",
    ),
    way(
        "git textconv",
        "git",
        "cd repo && echo '* diff=x' > .gitattributes && git -c diff.x.textconv=../evil diff",
        "cd repo && git diff --stat",
    ),
    way(
        "git pager",
        "git",
        "cd repo && git grep -O'touch pwned' c",
        "cd repo && git log --oneline",
    ),
    way(
        "git fsmonitor",
        "git",
        "cd repo && git -c core.fsmonitor=../evil status",
        "cd repo && git status --short",
    ),
    way(
        "git filter",
        "git",
        "cd repo && echo '* filter=x' > .gitattributes && git -c filter.x.clean=../evil add f",
        "cd repo && git add f",
    ),
    way(
        "git alias",
        "git",
        "cd repo && git -c alias.x='!touch pwned' x",
        "cd repo && git -c alias.x=log x",
    ),
    way(
        "git hook",
        "git",
        "cd repo && git -c core.hooksPath=../hooks commit -qam x",
        "cd repo && git commit -qam x",
    ),
    way(
        "git credential helper",
        "git",
        "cd repo && printf 'protocol=https\\nhost=h\\n\\n' | git -c credential.helper='!touch pwned' credential fill; true",
        "cd repo && git config --list >/dev/null",
    ),
];

fn git(house: &House, args: &[&str]) {
    let got = Command::new("git")
        .args(args)
        .current_dir(house.ws().join("repo"))
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .output()
        .unwrap();
    assert!(
        got.status.success(),
        "{args:?}: {}",
        String::from_utf8_lossy(&got.stderr)
    );
}

fn prepared(level: overnight::process::SandboxLevel) -> Option<House> {
    let house = House::with_programs(level)?;
    std::fs::create_dir_all(house.ws().join("repo")).unwrap();
    std::fs::write(house.ws().join("repo/f"), "a\n").unwrap();
    for args in [
        &["init", "-q"][..],
        &["config", "user.name", "t"],
        &["config", "user.email", "t@example.org"],
        &["config", "maintenance.auto", "false"],
        &["config", "gc.auto", "0"],
        &["add", "."],
        &["commit", "-qm", "a"],
    ] {
        git(&house, args);
    }
    std::fs::write(house.ws().join("repo/f"), "b\n").unwrap();
    std::fs::create_dir(house.ws().join("hooks")).unwrap();
    std::fs::copy(house.ws().join("evil"), house.ws().join("hooks/pre-commit")).unwrap();
    Some(house)
}

fn missing(program: &str) -> bool {
    program != "rg" && !have(program, Command::new(program).arg("--version").output().is_ok())
}

#[tokio::test]
async fn no_way_runs_anything_and_the_honest_use_works() {
    let mut wrong = Vec::new();
    for level in CONFINED {
        for way in WAYS.iter().filter(|way| !missing(way.needs)) {
            let Some(house) = prepared(level) else { return };
            let judge = Recorder::new();
            let got = house.run(way.honest, &judge).await;
            if got.denied.is_some() || got.exit.code != Some(0) {
                wrong.push(format!(
                    "{level:?}: {}: honest: {:?} {:?} {}",
                    way.name, got.denied, got.exit, got.stdout.text
                ));
            }
            std::fs::write(house.ws().join("repo/f"), "c\n").unwrap();
            let got = house.run(way.attack, &judge).await;
            let pwned = ["pwned", "repo/pwned", "src/pwned"]
                .iter()
                .any(|name| house.ws().join(name).exists());
            let denied = got.denied.as_ref().map(|(_, denial)| denial.code.as_str());
            if pwned || denied != Some("exec_not_granted") {
                wrong.push(format!(
                    "{level:?}: {}: pwned {pwned}, {denied:?} {:?} {}",
                    way.name, got.exit, got.stdout.text
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}:\n{}", wrong.len(), wrong.join("\n"));
}
