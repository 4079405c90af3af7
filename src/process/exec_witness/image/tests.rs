//! Tests of classes without real processes, for cases that cannot be produced at will.

use super::*;

/// A process that does not exist: its numbers are above any limit.
fn caller(number: i32, stack: u64) -> Caller {
    let file = image_of(rustix::process::getpid().as_raw_nonzero().get()).unwrap();
    Caller {
        process: Process {
            number: (1 << 30) + number,
            started: 7,
        },
        parent: 1 << 30,
        image: (stack > 0).then_some(Image {
            code: 5,
            stack,
            heap: 5,
            arguments: 5,
            environment: 5,
            file,
        }),
    }
}

/// After the helper (stack 1) has become the shell (stack 2).
fn rooted() -> Images {
    let mut images = Images::default();
    assert_eq!(images.class(&caller(1, 1)), AskerClass::Initial);
    assert_eq!(images.class(&caller(1, 1)), AskerClass::Initial);
    assert_eq!(images.class(&caller(1, 2)), AskerClass::Known(Starts::Judged));
    images
}

#[test]
fn the_helper_is_nobody_once_the_shell_runs() {
    let mut images = rooted();
    assert_eq!(images.class(&caller(1, 1)), AskerClass::Known(Starts::Judged));
}

#[test]
fn a_first_caller_that_was_killed_teaches_nothing() {
    let mut images = Images::default();
    assert_eq!(images.class(&caller(1, 1)), AskerClass::Initial);
    assert_eq!(images.class(&caller(2, 0)), AskerClass::Unreadable(None));
    assert_eq!(images.class(&caller(1, 2)), AskerClass::Known(Starts::Judged));
    let free = caller(3, 9);
    images.record_allowed(&caller(3, 2), free.image.map(|image| image.file), Starts::Anything);
    assert_eq!(images.class(&free), AskerClass::Known(Starts::Anything));
}

#[test]
fn an_exec_that_failed_changes_nothing() {
    let mut images = rooted();
    let shell = caller(1, 2);
    let other = FileId::of_test(3);
    images.record_allowed(&shell, Some(other), Starts::Anything);
    assert_eq!(images.class(&shell), AskerClass::Known(Starts::Judged));
    assert_eq!(images.class(&caller(9, 2)), AskerClass::Known(Starts::Judged));
}

#[test]
fn equal_addresses_mean_the_stricter_of_both() {
    for (second, want) in [(Starts::Anything, Starts::Judged), (Starts::Nothing, Starts::Nothing)] {
        let mut images = rooted();
        let file = caller(1, 2).image.map(|image| image.file);
        images.record_allowed(&caller(4, 2), file, second);
        assert_eq!(images.class(&caller(4, 2)), AskerClass::Known(want));
    }
}

#[test]
fn at_fixed_addresses_the_strictest_of_a_file_holds() {
    let mut images = rooted();
    let fixed = 0x7fff_ffff_e000;
    let file = caller(1, 2).image.map(|image| image.file);
    images.record_allowed(&caller(4, 2), None, Starts::Anything);
    assert_eq!(images.class(&caller(4, 3)), AskerClass::Known(Starts::Anything));
    images.record_allowed(&caller(4, 3), None, Starts::Anything);
    images.class(&caller(4, fixed));
    images.record_allowed(&caller(5, 2), file, Starts::Nothing);
    // A fork of the second program, whose own exec was not observed.
    assert_eq!(images.class(&caller(6, fixed)), AskerClass::Known(Starts::Nothing));
    assert_eq!(images.class(&caller(4, 3)), AskerClass::Known(Starts::Anything));
}

#[test]
fn a_file_that_was_swapped_is_judged() {
    let mut images = rooted();
    images.record_allowed(&caller(4, 2), Some(FileId::of_test(3)), Starts::Anything);
    assert_eq!(images.class(&caller(4, 8)), AskerClass::Known(Starts::Judged));
    images.record_allowed(&caller(5, 2), Some(FileId::of_test(3)), Starts::Nothing);
    assert_eq!(images.class(&caller(5, 9)), AskerClass::Known(Starts::Nothing));
}

#[test]
fn a_number_that_is_used_again_is_another_process() {
    let mut images = rooted();
    images.record_allowed(&caller(4, 2), None, Starts::Anything);
    images.record_allowed(&caller(5, 2), None, Starts::Nothing);
    let mut later = caller(4, 8);
    later.process.started += 1;
    assert_eq!(images.class(&later), AskerClass::Known(Starts::Judged));
}

#[test]
fn orphans_get_the_strictest_of_their_file_and_never_freedom() {
    let mut images = rooted();
    images.record_allowed(&caller(4, 2), None, Starts::Anything);
    assert_eq!(images.class(&caller(4, 8)), AskerClass::Known(Starts::Anything));
    assert_eq!(images.class(&caller(5, 9)), AskerClass::Known(Starts::Judged));
    images.record_allowed(&caller(6, 2), None, Starts::Nothing);
    assert_eq!(images.class(&caller(6, 10)), AskerClass::Known(Starts::Nothing));
    assert_eq!(images.class(&caller(7, 11)), AskerClass::Known(Starts::Nothing));
}

/// A shell below `make` that ended before its image was looked up.
#[test]
fn orphans_are_free_if_everything_that_was_allowed_is() {
    let file = caller(1, 2).image.map(|image| image.file);
    let other = Some(FileId::of_test(3));
    let free = |records: &[(Option<FileId>, Starts)]| {
        let mut images = rooted();
        for (number, (file, starts)) in (4..).zip(records) {
            images.record_allowed(&caller(number, 2), *file, starts.clone());
        }
        images.class(&caller(90, 9)) == AskerClass::Known(Starts::Anything)
    };
    assert!(free(&[(None, Starts::Anything)]));
    assert!(free(&[(other, Starts::Anything), (file, Starts::Anything)]));
    // Without a record, after one of another file, and beside one that may be its own and gives less.
    assert!(!free(&[]));
    assert!(!free(&[(other, Starts::Anything)]));
    assert!(!free(&[(None, Starts::Anything), (other, Starts::Nothing)]));
    assert!(!free(&[(None, Starts::Anything), (file, Starts::Judged)]));
}

#[test]
fn a_second_record_of_a_process_that_could_not_be_read_gives_no_more() {
    let mut images = rooted();
    images.record_allowed(&caller(4, 2), None, Starts::Nothing);
    images.record_allowed(&caller(4, 0), None, Starts::Anything);
    assert_eq!(images.class(&caller(4, 8)), AskerClass::Known(Starts::Nothing));
}

#[test]
fn what_cannot_be_read_is_known_by_its_number_and_start() {
    let mut images = rooted();
    images.record_allowed(&caller(4, 2), None, Starts::Anything);
    assert_eq!(
        images.class(&caller(4, 0)),
        AskerClass::Unreadable(Some(Starts::Anything))
    );
    assert_eq!(images.class(&caller(5, 0)), AskerClass::Unreadable(None));
}

#[test]
fn the_dead_are_forgotten_at_the_limit() {
    let mut images = rooted();
    for number in 0..10_000 {
        images.record_allowed(&caller(number, 2), None, Starts::Anything);
        images.class(&caller(number, 100 + u64::try_from(number).unwrap()));
        images.bound().unwrap();
        assert!(images.known.len() + images.allowed.len() <= MOST);
    }
}

#[test]
fn the_own_process_is_read() {
    let me = rustix::process::getpid().as_raw_nonzero().get();
    let own = Caller::read(me).unwrap();
    assert!(own.image.is_some());
    assert_eq!(own.process.number, me);
    // A thread that is not the leader belongs to the same process and has the same image.
    let thread = std::thread::spawn(|| Caller::read(rustix::thread::gettid().as_raw_nonzero().get()).unwrap());
    let thread = thread.join().unwrap();
    assert_eq!((thread.process, thread.image), (own.process, own.image));
    assert!(Caller::read(i32::MAX).is_none());
}

#[test]
fn a_stack_at_the_end_of_the_addresses_alone_is_chance() {
    let image = |code, stack| Image {
        code,
        ..caller(1, stack).image.unwrap()
    };
    for code in [
        0x5555_5555_4000,
        0x5555_5558_3000,
        0x7fff_f7fc_5000,
        0x40_1000,
        0xaaaa_aaaa_0000,
    ] {
        assert!(image(code, 0x7fff_ffff_e000).is_fixed(), "{code:x}");
        assert!(!image(code, 0x7ffd_1234_5000).is_fixed(), "{code:x}");
    }
    for code in [0x55d8_f7f8_c000, 0x5612_3456_7000, 0x7f3a_0000_1000] {
        assert!(!image(code, 0x7fff_ffff_e000).is_fixed(), "{code:x}");
    }
}
