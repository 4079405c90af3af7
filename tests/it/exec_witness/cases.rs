//! What is judged, exactly: each command with the arguments that the kernel would have executed, and nothing else.

use super::{CONFINED, House, Recorder, file_name};
use overnight::base::grant::Starts;

/// Ends a list whose other words do not matter.
const REST: &str = "\u{2026}";

struct Case {
    name: &'static str,
    text: &'static str,
    /// The words of each judged exec, in any order.
    judged: &'static [&'static [&'static str]],
    /// Must be in the output: proof that what was not judged did run.
    output: &'static str,
}

const fn case(
    name: &'static str,
    text: &'static str,
    judged: &'static [&'static [&'static str]],
    output: &'static str,
) -> Case {
    Case {
        name,
        text,
        judged,
        output,
    }
}

const SHELL: &[Case] = &[
    case("simple", "ls src/d; true", &[&["ls", "src/d"]], ""),
    case(
        "pipeline",
        "printf 'b\\na\\n' | sort | head -n1",
        &[&["sort"], &["head", "-n1"]],
        "a\n",
    ),
    case("subshell", "( cd src; (ls d) )", &[&["ls", "d"]], ""),
    case(
        "nested substitution",
        "echo \"$(echo $(date +%Y) $(basename /a/b))\"",
        &[&["date", "+%Y"], &["basename", "/a/b"]],
        " b\n",
    ),
    case(
        "process substitution",
        "cat <(date +%Y) >/dev/null",
        &[&["date", "+%Y"], &["cat", REST]],
        "",
    ),
    case("background", "sleep 0.01 & wait", &[&["sleep", "0.01"]], ""),
    case(
        "orphaned subshell",
        "( ( sleep 0.05; ls src/d ) & ) ; true",
        &[&["sleep", "0.05"], &["ls", "src/d"]],
        "",
    ),
    case("function", "f() { ls \"$1\"; }; f src/d", &[&["ls", "src/d"]], ""),
    case(
        "command builtin",
        "command ls src/d; builtin echo x; command -v ls",
        &[&["ls", "src/d"]],
        "x\n",
    ),
    case("exec", "exec ls src/d", &[&["ls", "src/d"]], ""),
    case("exec -a", "exec -a nice ls src/d", &[&["nice", "src/d"]], ""),
    case(
        "exec in a subshell",
        "(exec ls src/d); ls src",
        &[&["ls", "src/d"], &["ls", "src"]],
        "",
    ),
    case(
        "loop",
        "for i in 1 2 3; do ls -d $i; done 2>/dev/null",
        &[&["ls", "-d", "1"], &["ls", "-d", "2"], &["ls", "-d", "3"]],
        "",
    ),
    case("eval", "eval \"ls src/d\"", &[&["ls", "src/d"]], ""),
    case(
        "source",
        ". ./lib.sh; f",
        &[&["/bin/echo", "sourced"], &["/bin/echo", "from-lib"]],
        "from-lib",
    ),
    case("coproc", "coproc cat; exec {COPROC[1]}>&-; wait", &[&["cat"]], ""),
    case("trap", "trap 'ls src/d' EXIT; true", &[&["ls", "src/d"]], ""),
    case("PATH in front", "PATH=$PWD:$PATH shebang p", &[&["shebang", "p"]], ""),
    case(
        "hash -p",
        "hash -p /bin/echo git; git push",
        &[&["git", "push"]],
        "push\n",
    ),
    case(
        "command_not_found_handle",
        "command_not_found_handle() { ls src/d; }; nosuchprogram",
        &[&["ls", "src/d"]],
        "",
    ),
    case(
        "long list of arguments",
        "ls -d $(seq 1 5000) 2>/dev/null",
        &[&["seq", "1", "5000"], &["ls", "-d", REST]],
        "",
    ),
    case("not found", "nosuchprogram; ./nosuch; echo on", &[], "on\n"),
    case("not executable", "./lib.sh; echo $?", &[], "126\n"),
    case(
        "no exec at all",
        "cd src; x=1; [ -d d ] && echo y; read -r l <../lib.sh; printf %s \"$x\"",
        &[],
        "y\n1",
    ),
];

const NAMES: &[Case] = &[
    case(
        "names with blanks",
        "sort $(find src -name 'x one') 2>/dev/null",
        &[&["find", "src", "-name", "x one"], &["sort", "src/x", "one"]],
        "",
    ),
    case(
        "names that are options",
        "cd src && ls -- * >/dev/null; sort * 2>/dev/null; true",
        &[
            &["ls", "--", "-rf", "d", "x --output=pwn", "x one", "x-two"],
            &["sort", "-rf", "d", "x --output=pwn", "x one", "x-two"],
        ],
        "",
    ),
    case(
        "an option out of a name",
        "cd src; sort $(find . -name 'x --*') 2>/dev/null; true",
        &[&["find", ".", "-name", "x --*"], &["sort", "./x", "--output=pwn"]],
        "",
    ),
    case(
        "names through xargs",
        "cd src; find . -name 'x *' | sort | xargs ls -d 2>/dev/null; true",
        &[
            &["find", ".", "-name", "x *"],
            &["sort"],
            &["xargs", "ls", "-d"],
            &["ls", "-d", "./x", "--output=pwn", "./x", "one"],
        ],
        "",
    ),
    case(
        "names through find -exec",
        "find src -name 'x*' -exec ls {} ';'",
        &[
            &["find", "src", "-name", "x*", "-exec", "ls", "{}", ";"],
            &["ls", "src/x one"],
            &["ls", "src/x-two"],
            &["ls", "src/x --output=pwn"],
        ],
        "",
    ),
];

const WRAPPERS: &[Case] = &[
    case(
        "env",
        "env A=1 ls src/d",
        &[&["env", "A=1", "ls", "src/d"], &["ls", "src/d"]],
        "",
    ),
    case(
        "timeout",
        "timeout 5 ls src/d",
        &[&["timeout", "5", "ls", "src/d"], &["ls", "src/d"]],
        "",
    ),
    case(
        "nested",
        "timeout 5 env nice ls src/d",
        &[
            &["timeout", "5", "env", "nice", "ls", "src/d"],
            &["env", "nice", "ls", "src/d"],
            &["nice", "ls", "src/d"],
            &["ls", "src/d"],
        ],
        "",
    ),
    case(
        "xargs",
        "echo src/d src | xargs -n1 ls -d",
        &[
            &["xargs", "-n1", "ls", "-d"],
            &["ls", "-d", "src/d"],
            &["ls", "-d", "src"],
        ],
        "src/d\nsrc\n",
    ),
    case(
        "find -exec +",
        "find src -name 'x*' -exec ls {} +",
        &[&["find", "src", "-name", "x*", "-exec", "ls", "{}", "+"], &["ls", REST]],
        "x one",
    ),
    case(
        "xargs -0",
        "find src -name 'x*' -print0 | xargs -0 cat",
        &[
            &["find", "src", "-name", "x*", "-print0"],
            &["xargs", "-0", "cat"],
            &["cat", REST],
        ],
        "1\n1\n1\n",
    ),
    case(
        "bash -c",
        "bash -c 'ls src/d; (ls src)'",
        &[&["bash", "-c", "ls src/d; (ls src)"], &["ls", "src/d"], &["ls", "src"]],
        "x-two",
    ),
    case(
        "sh in xargs",
        "echo x | xargs sh -c 'ls src/d; true'",
        &[
            &["xargs", "sh", "-c", "ls src/d; true"],
            &["sh", "-c", "ls src/d; true", "x"],
            &["ls", "src/d"],
        ],
        "",
    ),
    case(
        "PATH with gaps",
        "PATH=/nonexistent:$PWD/src:/usr/games:$PATH env ls src/d",
        &[&["env", "ls", "src/d"], &["ls", "src/d"]],
        "",
    ),
    case(
        "script with #!",
        "env ./shebang a b",
        &[&["env", "./shebang", "a", "b"], &["./shebang", "a", "b"]],
        "",
    ),
];

const FREE: &[Case] = &[
    case(
        "one with a shell of its own",
        "aux/runner \"bash -c '/bin/echo inner | cat'\"",
        &[&["aux/runner", REST]],
        "inner\n",
    ),
    case(
        "one with its own xargs, and the shell's",
        "echo q | xargs ls -d 2>/dev/null; aux/runner 'echo r | xargs /bin/echo'",
        &[&["xargs", "ls", "-d"], &["ls", "-d", "q"], &["aux/runner", REST]],
        "r\n",
    ),
    case(
        "one that runs a wrapper's like when that is gone",
        "find src -maxdepth 0 >/dev/null; sh -c ':'; aux/runner \"sh -c 'find . -maxdepth 0 -exec /bin/echo g {} +'\"",
        &[
            &["find", "src", "-maxdepth", "0"],
            &["sh", "-c", ":"],
            &["aux/runner", REST],
        ],
        "g .\n",
    ),
    case("make", "make -s", &[&["make", "-s"]], "one\ntwo\n"),
    case(
        "double fork",
        "aux/dfork /bin/echo daemon",
        &[&["aux/dfork", "/bin/echo", "daemon"]],
        "daemon\n",
    ),
    case(
        "double fork, then the shell",
        "aux/dfork /bin/sh -c '/bin/echo d2' & ls src/d; wait",
        &[&["aux/dfork", REST], &["ls", "src/d"]],
        "d2\n",
    ),
    case(
        "orphan",
        "aux/orphan /bin/echo alone",
        &[&["aux/orphan", "/bin/echo", "alone"]],
        "alone\n",
    ),
    case(
        "thread and posix_spawn",
        "aux/thr /bin/echo t",
        &[&["aux/thr", "/bin/echo", "t"]],
        "t\nt\n",
    ),
    case(
        "execveat by descriptor",
        "aux/fexec /bin/echo at",
        &[&["aux/fexec", "/bin/echo", "at"]],
        "at\n",
    ),
    case(
        "non-dumpable",
        "aux/nodump /bin/echo n",
        &[&["aux/nodump", "/bin/echo", "n"]],
        "n\n",
    ),
    case(
        "mode 111",
        "chmod 111 aux/nodump-x; aux/nodump-x '/bin/echo m'",
        &[&["chmod", "111", "aux/nodump-x"], &["aux/nodump-x", "/bin/echo m"]],
        "m\n",
    ),
];

fn fits(want: &[&str], got: &[String]) -> bool {
    match want.iter().position(|word| *word == REST) {
        Some(end) => got.len() >= end && want[..end] == got[..end],
        None => want == got,
    }
}

/// Every case at every level; all that is wrong together.
async fn all(tables: &[&[Case]]) {
    let mut wrong = Vec::new();
    let mut runs = 0;
    for level in CONFINED {
        let Some(house) = House::with_programs(level) else {
            return;
        };
        for case in tables.iter().copied().flatten() {
            runs += 1;
            let judge = Recorder::new();
            let got = house.run(case.text, &judge).await;
            let mut left = judge.argvs();
            let mut missing = Vec::new();
            for want in case.judged {
                match left.iter().position(|argv| fits(want, argv)) {
                    Some(at) => drop(left.remove(at)),
                    None => missing.push(want),
                }
            }
            let told: Vec<&[String]> = got.execs.iter().map(|exec| exec.argv.as_slice()).collect();
            if !missing.is_empty()
                || !left.is_empty()
                || got.denied.is_some()
                || !got.stdout.text.contains(case.output)
                || (told.len(), got.execs_omitted) != (case.judged.len(), 0)
            {
                wrong.push(format!(
                    "{level:?}: {}: missing {missing:?}, too much {left:?}, denied {:?}, told {told:?}, output {:?}",
                    case.name, got.denied, got.stdout.text
                ));
            }
        }
    }
    assert!(
        runs > 0 && wrong.is_empty(),
        "{} of {runs}:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

#[tokio::test]
async fn the_shell_and_its_copies_are_judged() {
    all(&[SHELL]).await;
}

#[tokio::test]
async fn names_of_files_are_judged_as_the_words_that_they_become() {
    all(&[NAMES]).await;
}

#[tokio::test]
async fn what_wrappers_start_is_judged() {
    all(&[WRAPPERS]).await;
}

#[tokio::test]
async fn what_free_programs_start_is_not() {
    all(&[FREE]).await;
}

/// All of it again in a process whose addresses are not drawn at random. Run by `without_random_addresses`.
#[tokio::test]
#[ignore = "run again by another test, in a process of its own"]
async fn inner_without_random_addresses() {
    let personality = std::fs::read_to_string("/proc/self/personality").unwrap();
    assert_eq!(personality.trim(), "00040000");
    all(&[SHELL, NAMES, WRAPPERS]).await;
}

#[test]
fn without_random_addresses() {
    let got = std::process::Command::new("setarch")
        .arg("-R")
        .arg(std::env::current_exe().unwrap())
        .args([
            "exec_witness::cases::inner_without_random_addresses",
            "--exact",
            "--ignored",
            "--nocapture",
        ])
        .output()
        .unwrap();
    let (out, err) = (
        String::from_utf8_lossy(&got.stdout),
        String::from_utf8_lossy(&got.stderr),
    );
    assert!(got.status.success() && out.contains("1 passed"), "{out}\n{err}");
}

#[tokio::test]
async fn an_exec_is_told_as_the_kernel_sees_it() {
    for level in CONFINED {
        let house = super::house(level);
        std::os::unix::fs::symlink("../evil", house.ws().join("src/link")).unwrap();
        let judge = Recorder::new();
        let got = house.run("cd src && ./link a", &judge).await;
        assert!(
            got.denied.is_some(),
            "a script that may start nothing has started something"
        );
        let seen = judge.seen();
        let ws = house.ws();
        assert_eq!(seen[0].path, ws.join("src/link"), "{level:?}");
        assert_eq!(seen[0].real, ws.join("evil"), "{level:?}");
        assert_eq!(seen[0].cwd, ws.join("src"), "{level:?}");
        let [shell] = seen[0].interpreters.as_slice() else {
            panic!("{:?}", seen[0].interpreters);
        };
        assert_eq!(shell.real, std::fs::canonicalize("/bin/sh").unwrap());
        assert_eq!(shell.argv, ["/bin/sh", "./link", "a"]);
        assert_eq!(seen[0].caller, Starts::Judged);
        assert_eq!(seen[1].argv, ["/usr/bin/touch", "pwned"]);
        assert_eq!(seen[1].caller, Starts::Nothing);
        let judge = Recorder::new();
        house
            .run("/usr/bin/awk 'BEGIN{}'; cd /; exec -a x /bin/ls", &judge)
            .await;
        let seen = judge.seen();
        let real = std::fs::canonicalize("/usr/bin/awk").unwrap();
        assert_eq!(
            (seen[0].path.to_str(), &seen[0].real),
            (Some("/usr/bin/awk"), &real),
            "{level:?}"
        );
        assert!(seen[0].interpreters.is_empty());
        assert!(!seen[0].is_unread);
        assert_eq!(
            (seen[1].argv[0].as_str(), file_name(&seen[1].real).as_str()),
            ("x", "ls")
        );
        assert_eq!(seen[1].cwd.to_str(), Some("/"));
    }
}
