//! Tests of bounded output.

use super::*;
use std::sync::Mutex;

fn captured(pieces: &[&[u8]], shown: usize) -> Captured {
    let mut capture = Capture::new(&Redactor::default(), shown, None, None);
    for piece in pieces {
        capture.push(piece);
    }
    capture.finish()
}

#[test]
fn what_fits_is_whole() {
    let got = captured(&[b"one\n", b"two\n"], 8);
    assert_eq!(
        (got.text.as_str(), got.bytes, got.cut, got.omitted),
        ("one\ntwo\n", 8, false, 0)
    );
    assert!(!got.binary);
}

#[test]
fn what_does_not_fit_shows_its_head_and_tail() {
    let got = captured(&[b"abcd", b"efgh", b"ijkl"], 4);
    assert_eq!(got.text, "ab\n[... 8 bytes left out ...]\nkl");
    assert_eq!((got.bytes, got.cut, got.omitted), (12, true, 8));
}

#[test]
fn a_character_in_two_pieces_is_one_character() {
    let whole = "aé€😀z".as_bytes();
    for cut in 0..=whole.len() {
        let heard = Arc::new(Mutex::new(String::new()));
        let tell = Arc::clone(&heard);
        let on_output: OnOutput = Arc::new(move |text: &str| tell.lock().unwrap().push_str(text));
        let mut capture = Capture::new(&Redactor::default(), 100, None, Some(on_output));
        capture.push(&whole[..cut]);
        capture.push(&whole[cut..]);
        assert_eq!(capture.finish().text, "aé€😀z");
        assert_eq!(*heard.lock().unwrap(), "aé€😀z");
    }
}

#[test]
fn a_cut_never_splits_a_character() {
    let text = "€".repeat(20);
    for shown in 2..20 {
        assert!(
            !captured(&[text.as_bytes()], shown).text.contains('\u{fffd}'),
            "at {shown}"
        );
    }
}

#[test]
fn only_what_is_no_text_is_binary() {
    let elf: Vec<u8> = std::fs::read("/proc/self/exe")
        .unwrap()
        .into_iter()
        .take(4096)
        .collect();
    let random: Vec<u8> = (0..512_u32)
        .map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect();
    for (name, bytes, binary) in [
        ("a program", elf.as_slice(), true),
        ("nothing but NUL", &[0; 100], true),
        ("noise", &random, true),
        (
            "names",
            b"src/a.rs\0src/b.rs\0Cargo.toml\0".repeat(20).as_slice(),
            false,
        ),
        ("short names", b"a\0b\0c\0d\0e\0f\0g\0h\0i\0j\0", false),
        ("one NUL", b"a\0b", false),
        (
            "another encoding",
            b"caf\xe9 au lait, cr\xe8me br\xfbl\xe9e\n".repeat(9).as_slice(),
            false,
        ),
        ("colours", b"\x1b[1;31merror\x1b[0m: x\r\n".repeat(9).as_slice(), false),
        ("another script", "日本語のテキスト\n".repeat(50).as_bytes(), false),
        ("nothing", b"", false),
    ] {
        assert_eq!(captured(&[bytes], 100).binary, binary, "{name}");
    }
    let mut late = vec![b'x'; 4096];
    late.extend([0; 4096]);
    assert!(!captured(&[&late], 10).binary);
}

#[test]
fn what_no_text_has_is_replaced_and_counted() {
    let bytes = b"a\0\xff\xe2\x82b\0\xc3";
    for cut in 0..=bytes.len() {
        let got = captured(&[&bytes[..cut], &bytes[cut..]], 100);
        assert_eq!(got.text, "a\u{fffd}\u{fffd}\u{fffd}b\u{fffd}\u{fffd}", "at {cut}");
        assert_eq!((got.nuls, got.not_utf8, got.binary), (2, 4, false), "at {cut}");
    }
}

#[test]
fn the_whole_is_kept_in_a_file_only_when_it_is_longer_than_shown() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("r1");
    let mut capture = Capture::new(&Redactor::default(), 6, Some(path.clone()), None);
    capture.push(b"abcdef");
    assert!(!path.exists());
    capture.push(b"ghi");
    capture.push(b"jkl");
    let got = capture.finish();
    assert_eq!(got.text, "abc\n[... 6 bytes left out ...]\njkl");
    assert_eq!(got.omitted, 0);
    assert_eq!(std::fs::read(&path).unwrap(), b"abcdefghijkl");
}

#[test]
fn the_ring_keeps_first_and_last_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("r1");
    let file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path)
        .unwrap();
    let mut keep = Keep::Open {
        file,
        side: 4,
        written: 0,
    };
    keep.write(b"abcdefghij");
    keep.write(b"klm");
    assert_eq!(keep.close(), Some(5));
    assert_eq!(std::fs::read(&path).unwrap(), b"abcd\n[... 5 bytes left out ...]\njklm");
}

#[test]
fn a_directory_that_is_full_takes_no_more() {
    let dir = tempfile::tempdir().unwrap();
    let full = File::create(dir.path().join("r0")).unwrap();
    full.set_len(KEEP_ALL).unwrap();
    let mut capture = Capture::new(&Redactor::default(), 2, Some(dir.path().join("r1")), None);
    capture.push(b"abcdef");
    assert_eq!(capture.finish().omitted, 4);
}
