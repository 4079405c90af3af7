//! Tests of the bounded output.

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
fn binary_is_seen_in_the_first_4096_bytes_only() {
    assert!(captured(&[b"a\0b"], 10).binary);
    let mut late = vec![b'x'; 4096];
    late.push(0);
    assert!(!captured(&[&late], 10).binary);
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
