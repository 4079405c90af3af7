//! Tests of readings by example: files, hosts, wrappers, concerns and refusals.

use super::corpus::FS_VIEW;
use super::{CommandReading, CommandRefusal, FileUse, Grants, read};

fn reading(text: &str) -> CommandReading {
    read(text, "", &FS_VIEW, &Grants::default()).unwrap()
}

fn refusal(text: &str) -> CommandRefusal {
    read(text, "", &FS_VIEW, &Grants::default()).unwrap_err()
}

fn paths(uses: &[FileUse]) -> Vec<&str> {
    uses.iter()
        .filter_map(|used| used.place.as_ref().map(|place| place.path.as_str()))
        .collect()
}

#[test]
fn files_are_resolved_from_the_directory_that_cd_leads_to() {
    let found = reading("cd src && cat lib.rs ../README.md > ../out.txt; ls -l");
    let cat = &found.commands[1];
    assert_eq!(paths(&cat.reads), ["src/lib.rs", "README.md"]);
    assert_eq!(paths(&cat.writes), ["out.txt"]);
    let found = read("cat lib.rs", "src", &FS_VIEW, &Grants::default()).unwrap();
    assert_eq!(paths(&found.commands[0].reads), ["src/lib.rs"]);
}

#[test]
fn a_cd_that_may_fail_counts_both_ways() {
    let found = reading("cd src; cat a.txt");
    assert_eq!(paths(&found.commands[1].reads), ["src/a.txt", "a.txt"]);
    let found = reading("(cd src && ls); cat a.txt");
    assert_eq!(paths(&found.commands[2].reads), ["a.txt"]);
}

#[test]
fn what_a_compressor_makes_is_written() {
    for (text, written) in [
        ("gzip src/a", vec!["src/a", "src/a.gz"]),
        ("gzip -d a.gz", vec!["a.gz", "a"]),
        ("gunzip a.tgz", vec!["a.tgz", "a.tar"]),
        ("bzip2 -k a", vec!["a", "a.bz2"]),
        ("xz a", vec!["a", "a.xz"]),
        ("zstd a", vec!["a", "a.zst"]),
        ("zip -r src/z docs", vec!["src/z", "src/z.zip"]),
        ("zip -r z.zip docs", vec!["z.zip"]),
        ("gzip -dc a.gz", vec![]),
        ("gunzip -t a.gz", vec![]),
    ] {
        assert_eq!(paths(&reading(text).commands[0].writes), written, "{text}");
    }
}

#[test]
fn output_options_write() {
    for (text, reads, writes) in [
        ("sort -o src/s src/a", vec!["src/a"], vec!["src/s"]),
        ("sort --output=s a", vec!["a"], vec!["s"]),
        ("iconv -f latin1 -t utf8 -o b a", vec!["a"], vec!["b"]),
        ("tar -cf a.tar docs", vec!["docs"], vec!["a.tar"]),
        ("tar -czf a.tgz docs", vec!["docs"], vec!["a.tgz"]),
    ] {
        let found = reading(text);
        assert!(found.commands[0].concern().is_none(), "{text}");
        assert_eq!(paths(&found.commands[0].reads), reads, "{text}");
        assert_eq!(paths(&found.commands[0].writes), writes, "{text}");
    }
    assert!(reading("tar -cf host:a.tar docs").commands[0].concern().is_some());
}

#[test]
fn the_target_of_a_symbolic_link_is_named_from_the_link() {
    for (text, reads, writes) in [
        ("ln -s ../docs/d.md src/l", vec!["docs/d.md"], vec!["src/l"]),
        ("ln -s a.txt src/l", vec!["src/a.txt"], vec!["src/l"]),
        (
            "ln -sf ../.git/config src/l",
            vec![".git/config"],
            vec!["src/l", ".git/config"],
        ),
        ("ln -s docs/d.md", vec!["docs/d.md"], vec!["d.md"]),
        ("ln a.txt src/l", vec![], vec!["a.txt", "src/l"]),
    ] {
        let found = reading(text);
        assert_eq!(paths(&found.commands[0].reads), reads, "{text}");
        assert_eq!(paths(&found.commands[0].writes), writes, "{text}");
    }
    let outside = reading("ln -s ../../x src/l");
    assert!(!outside.commands[0].reads[0].place.as_ref().unwrap().inside);
}

#[test]
fn wrappers_are_named_and_taken_off() {
    let found = reading("env CI=1 timeout 5 nice cargo test");
    assert_eq!(found.commands[0].via, ["env", "timeout", "nice"]);
    assert_eq!(found.commands[0].program, "cargo");
    let found = reading("bash -c 'ls && git status'");
    assert_eq!(found.commands.len(), 2);
    assert_eq!(found.commands[1].via, ["bash"]);
    let found = reading("find src -name x -exec wc -l {} +");
    assert_eq!(found.commands[1].program, "wc");
    assert_eq!(found.commands[1].via, ["find"]);
}

#[test]
fn redirects_of_groups_belong_to_the_reading() {
    let found = reading("{ ls; } > out.txt 2>/dev/null < README.md");
    assert_eq!(paths(&found.writes), ["out.txt"]);
    assert_eq!(paths(&found.reads), ["README.md"]);
    assert!(reading("ls > /dev/null 2>&1").commands[0].writes.is_empty());
}

fn witnessed(text: &str) -> CommandReading {
    let grants = Grants {
        witness: true,
        ..Grants::default()
    };
    read(text, "", &FS_VIEW, &grants).unwrap()
}

#[test]
fn words_that_are_not_known_are_left_to_the_exec() {
    for text in [
        "for f in src/a.txt /etc/passwd; do cat \"$f\"; done",
        "git ls-files | xargs wc -l",
        "cat list | xargs -I{} wc -l src/{}",
        "git diff $(git merge-base main HEAD)",
        "find src -name '*.rs' -exec sort {} +",
        "cd \"$(git rev-parse --show-toplevel)\" && cat README.md",
        "cat src/*.txt",
    ] {
        let found = witnessed(text);
        let last = found.commands.iter().rfind(|simple| !simple.state_only).unwrap();
        let pattern = text.ends_with("*.txt");
        assert!(last.deferred.is_some() || pattern, "{text}");
        assert!(last.concern().is_none(), "{text}");
        let without = read(text, "", &FS_VIEW, &Grants::default());
        let refused = without.is_err_and(|refusal| refusal.code == "refused_construct:cd") || reading_refuses(text);
        assert!(refused || pattern, "without a witness: {text}");
    }
    let found = reading("cat src/*.txt");
    assert_eq!(
        paths(&found.commands[0].reads),
        ["src/*.txt", "src/a.txt", "src/b.txt", "src/list.txt"]
    );
}

fn reading_refuses(text: &str) -> bool {
    let Ok(found) = read(text, "", &FS_VIEW, &Grants::default()) else {
        return true;
    };
    let opaque = |simple: &super::Simple| {
        simple
            .concern()
            .is_some_and(|concern| concern.code == "opaque_argument")
    };
    found.commands.iter().any(opaque)
}

#[test]
fn a_directory_that_is_not_known_leaves_no_redirect_to_chance() {
    let grants = Grants {
        witness: true,
        ..Grants::default()
    };
    let refused = read("cd \"$x\" && ls > out.txt", "", &FS_VIEW, &grants).unwrap_err();
    assert_eq!(refused.code, "redirect_opaque");
    let found = witnessed("cd \"$x\" && cat a.txt");
    assert!(found.commands[1].deferred.is_some());
    assert!(read("for f in a b; do cd $f; cat x > y; done", "", &FS_VIEW, &grants).is_err());
}

#[test]
fn a_way_back_that_only_a_failed_cd_would_lead_outside_is_left_to_the_exec() {
    for text in [
        "cd src; ls; cd ..; ls",
        "cd src\nls\ncd ..\nls",
        "cd src && ls; cd .. && ls",
        "mkdir -p t && cd t && ls; cd ..",
        "cd sub; cd deep; ls; cd ../..; cat README.md",
    ] {
        let found = witnessed(text);
        let last = found.commands.last().unwrap();
        assert_eq!(last.dirs.is_none(), !text.ends_with(".."), "{text}");
        let refused = read(text, "", &FS_VIEW, &Grants::default()).unwrap_err();
        assert_eq!(refused.code, "outside_path", "{text}");
    }
    let grants = Grants {
        witness: true,
        ..Grants::default()
    };
    for (text, code) in [
        ("cd ..; ls", "outside_path"),
        ("cd src && cd ../..; ls", "outside_path"),
        ("cd src; ls; cd ..; ls > out.txt", "redirect_opaque"),
    ] {
        assert_eq!(read(text, "", &FS_VIEW, &grants).unwrap_err().code, code, "{text}");
    }
}

#[test]
fn hosts_are_listed() {
    assert_eq!(
        reading("curl -s https://docs.rs/a").commands[0].hosts,
        ["https://docs.rs/a"]
    );
}

#[test]
fn plain_questions_need_no_rule() {
    let found = reading("cd src && [ -f lib.rs ] && echo yes || exit 1");
    assert!(found.commands.iter().all(|simple| simple.state_only));
    assert_eq!(paths(&reading("echo yes > out.txt").commands[0].writes), ["out.txt"]);
    assert!(reading("echo \"$x\" | cat").commands[0].state_only);
}

#[test]
fn an_unquoted_word_of_a_test_is_told_to_be_quoted() {
    for (text, fix) in [
        ("[ $n -gt 3 ]", "quote it: `\"$n\"`"),
        ("while [ $i -lt 3 ]; do ls; done", "quote it: `\"$i\"`"),
        ("test -v name", "test the value"),
    ] {
        let refused = read(text, "", &FS_VIEW, &Grants::default()).unwrap_err();
        assert_eq!(refused.code, "refused_construct:test -v", "{text}");
        assert!(refused.fix.starts_with(fix), "{text}: {refused:?}");
    }
    assert!(read("[ \"$n\" -gt 3 ]", "", &FS_VIEW, &Grants::default()).is_ok());
}

#[test]
fn refusals_say_why() {
    for (text, code) in [
        ("eval ls", "refused_construct:eval"),
        ("ls &", "refused_construct:&"),
        ("$x", "refused_construct:opaque_program"),
        ("ls <(ls)", "refused_construct:<( )"),
        ("PATH=. ls", "assignment:PATH"),
        ("env -i git status", "assignment:-i"),
        ("env -u GIT_CONFIG_COUNT git status", "assignment:GIT_CONFIG_COUNT"),
        ("printf 'x%n' PATH", "refused_construct:printf"),
        ("printf '\\%n' PATH", "refused_construct:printf"),
        ("printf '%hn' PATH", "refused_construct:printf"),
        ("printf \"$x\"", "refused_construct:printf"),
        ("printf -v PATH x", "refused_construct:printf"),
        ("ls > \"$x\"", "redirect_opaque"),
        ("cd ..", "outside_path"),
        ("cd link", "outside_path"),
        ("ls \u{202e}", "control_character"),
        ("ls (", "parse_error"),
        ("", "parse_error"),
        ("for f in a; do cd src; done", "refused_construct:cd_in_loop"),
        ("echo ${x@P}", "refused_construct:${"),
        ("echo {1..1000}", "limit:braces"),
        ("ls 999999999999>x", "limit:descriptor"),
    ] {
        assert_eq!(refusal(text).code, code, "{text}");
    }
    assert_eq!(refusal(&"x".repeat(20_000)).code, "limit:size");
    assert_eq!(refusal(&"ls;".repeat(300)).code, "limit:commands");
    assert_eq!(refusal(&"(ls;".repeat(12)).code, "limit:nesting");
}

#[test]
fn granted_names_may_be_set() {
    let granted = ["MY_FLAG".to_owned(), "PATH".to_owned()];
    let grants = Grants {
        witness: false,
        assignments: &granted,
        profiles: None,
    };
    assert!(read("MY_FLAG=1 ls", "", &FS_VIEW, &grants).is_ok());
    assert!(read("MY_FLAG=1 ls", "", &FS_VIEW, &Grants::default()).is_err());
    assert!(read("PATH=1 ls", "", &FS_VIEW, &grants).is_err());
}
