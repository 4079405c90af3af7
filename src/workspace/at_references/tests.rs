//! Tests of what counts as a reference, and which files it attaches.

use super::*;

#[test]
fn references_are_told_from_other_text() {
    let cases: [(&str, &[&str]); 16] = [
        ("fix @src/main.rs please", &["src/main.rs"]),
        ("see @README.md.", &["README.md"]),
        ("(@a.rs, @b.rs)", &["a.rs", "b.rs"]),
        ("@\"with blank.md\" and @'other one'", &["with blank.md", "other one"]),
        ("@with\\ blank.md!", &["with blank.md"]),
        ("mail me@example.org", &[]),
        ("git@host:repo", &[]),
        ("\\@src/main.rs", &[]),
        ("@@src", &[]),
        ("@", &[]),
        ("@ src", &[]),
        ("thanks @someone", &["someone"]),
        ("all of @src/**/*.rs", &["src/**/*.rs"]),
        ("\n@a\n@b", &["a", "b"]),
        ("@\"unclosed\nquote\"", &[]),
        ("@größe.txt", &["größe.txt"]),
    ];
    for (text, expected) in cases {
        let found = find(text);
        let paths: Vec<&str> = found.iter().map(Reference::path).collect();
        assert_eq!(paths, expected, "{text}");
    }
}

fn tree() -> (tempfile::TempDir, Workspace) {
    let dir = tempfile::tempdir().unwrap();
    let png = "\u{89}PNG".as_bytes();
    let files: [(&str, &[u8]); 8] = [
        ("src/a.rs", b"fn a() {}\n"),
        ("src/b.rs", b"---\nfn b() {}"),
        ("src/x.bin", b"\0\x01\0"),
        ("odd.", b"odd\n"),
        ("key.pem", b"secret\n"),
        ("pic.png", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"),
        ("with blank.md", b"blank\n"),
        ("not.png", png),
    ];
    for (path, bytes) in files {
        let path = dir.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }
    std::os::unix::fs::symlink("/etc/hostname", dir.path().join("away.md")).unwrap();
    let mut workspace = Workspace::open(dir.path()).unwrap();
    workspace.set_unreadable(Box::new(|_, path| path.ends_with(".pem")));
    (dir, workspace)
}

fn text(attached: &Attached) -> &str {
    match attached.parts.first() {
        Some(Part::Text { text }) => text,
        _ => "",
    }
}

#[test]
fn files_directories_and_globs_come_after_the_prompt() {
    let (_dir, workspace) = tree();
    let attached = attach(&workspace, "look at @src, @\"with blank.md\" and @odd.", &|_| true);
    assert_eq!(attached.files, ["odd.", "src/a.rs", "src/b.rs", "with blank.md"]);
    assert!(text(&attached).contains("--- src/a.rs ---\nfn a() {}\n--- end of src/a.rs ---\n"));
    assert!(text(&attached).contains("---- src/b.rs ----\n---\nfn b() {}\n---- end of src/b.rs ----\n"));
    assert!(attached.warnings.is_empty(), "{:?}", attached.warnings);
    assert_eq!(
        attach(&workspace, "@src/*.rs", &|_| true).files,
        ["src/a.rs", "src/b.rs"]
    );
    assert_eq!(attach(&workspace, "(@src/a.rs)", &|_| true).files, ["src/a.rs"]);
}

#[test]
fn pictures_come_as_parts_when_named() {
    let (_dir, workspace) = tree();
    let attached = attach(&workspace, "@pic.png", &|_| true);
    assert!(matches!(attached.parts.as_slice(), [Part::Media(media)] if media.mime == "image/png"));
    assert!(
        attach(&workspace, "@.", &|_| true)
            .parts
            .iter()
            .all(|part| matches!(part, Part::Text { .. }))
    );
}

#[test]
fn what_may_not_be_read_or_is_not_there_is_a_warning() {
    let (_dir, workspace) = tree();
    for (prompt, warnings) in [
        ("@key.pem", 1),
        ("@nothing/here.rs", 1),
        ("@../up.rs", 1),
        ("@away.md", 1),
        ("@src/x.bin", 1),
        ("@*.zig", 1),
        ("@someone, hello", 0),
        ("me@host.org", 0),
        ("@app.route('/x')", 0),
    ] {
        let attached = attach(&workspace, prompt, &|_| true);
        assert_eq!(
            (attached.warnings.len(), attached.parts.len()),
            (warnings, 0),
            "{prompt}: {attached:?}"
        );
    }
    let denied = attach(&workspace, "@src/a.rs", &|_| false);
    assert!(denied.parts.is_empty() && denied.warnings[0].contains("policy"));
}

#[test]
fn references_beyond_the_limit_are_noticed() {
    let (_dir, workspace) = tree();
    let told = |count: usize| attach(&workspace, &"@src/a.rs ".repeat(count), &|_| true).warnings;
    assert!(told(MAX_REFS).is_empty());
    assert_eq!(told(MAX_REFS + 1), ["only the first 100 references are read"]);
}
