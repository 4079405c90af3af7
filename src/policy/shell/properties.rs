//! Property tests: wrapping, quoting and removing rules never allow more, and every text gets an answer.

use super::corpus::{ATTACKS, BENIGN, CorpusJudge, FS_VIEW, cases};
use super::{Grants, read};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::LazyLock;

type Cases = (BTreeMap<String, CorpusJudge>, Vec<(String, String, String)>);

static DENIED: LazyLock<Cases> = LazyLock::new(|| {
    let (judges, mut all) = cases(ATTACKS);
    // Broken syntax may become valid inside other text, so only commands that bash would run are wrapped. `read` alone
    // is refused, but is accepted in a loop's condition.
    all.retain(|(class, _, text)| class != "hostile" && !text.starts_with("read ") && !syntax(text));
    (judges, all)
});
static EVERYDAY: LazyLock<Cases> = LazyLock::new(|| cases(BENIGN));

/// Commands in which every character is outside quotes.
static PLAIN: LazyLock<Vec<(String, String, String)>> = LazyLock::new(|| {
    let plain = |text: &str| {
        !text.contains(['"', '\'', '$', '<', '#', '\\', '`']) && (0..text.len()).any(|at| in_word(text, at))
    };
    DENIED.1.iter().filter(|(_, _, text)| plain(text)).cloned().collect()
});

/// Whether `at` is between two letters or digits.
fn in_word(text: &str, at: usize) -> bool {
    let part = |at: usize| text.as_bytes().get(at).is_some_and(u8::is_ascii_alphanumeric);
    at > 0 && part(at - 1) && part(at)
}

fn syntax(text: &str) -> bool {
    read(text, "", &FS_VIEW, &Grants::default()).is_err_and(|refusal| refusal.code == "parse_error")
}

/// Contexts in which a command runs; `@` is the command. It is in braces where the context changes the meaning of its
/// words: `cd` after a pipe, `read` after `while`.
const CONTEXTS: [&str; 26] = [
    "@\n",
    "ls; @\n",
    "@\nls",
    "true && @\n",
    "false || @\n",
    "ls | { @\n}",
    "@\n",
    "{ @\n}",
    "( @\n)",
    "if true; then @\nfi",
    "if { @\n}\nthen ls; fi",
    "if false; then ls; else @\nfi",
    "if false; then ls; elif @\nthen ls; fi",
    "while false; do @\ndone",
    "while { @\n}\ndo break; done",
    "until { @\n}\ndo ls; done",
    "for q in 1 2; do @\ndone",
    "case x in x) @\n;; esac",
    "! { @\n}",
    "time { @\n}",
    "ls \"$(@\n)\"",
    "ls $(@\n)",
    "qq=$(@\n)",
    "ls > /dev/null; @\n",
    "{ { @\n}\n} 2>&1",
    "( (ls); @\n)",
];

/// Denied whatever the policy's rules for files say, as the bare command is.
fn denied(judge: &CorpusJudge, text: &str) -> bool {
    judge.refusal(text).is_some()
}

/// A few thousand cases; a million if the long tests are enabled.
fn runs() -> u32 {
    if std::env::var_os("OVERNIGHT_LONG").is_some() {
        1_000_000
    } else {
        3_000
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: runs(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_denied_command_stays_denied_in_any_place(pick in any::<prop::sample::Index>(), context in any::<prop::sample::Index>()) {
        let (judges, all) = &*DENIED;
        let (_, policy, text) = pick.get(all);
        let wrapped = context.get(&CONTEXTS).replacen('@', text, 1);
        prop_assert!(denied(&judges[policy], &wrapped), "allowed: {wrapped}");
    }

    #[test]
    fn quotes_inside_words_allow_nothing_more(pick in any::<prop::sample::Index>(), at in any::<prop::sample::Index>(), what in 0..4_usize) {
        let (judges, all) = (&DENIED.0, &*PLAIN);
        let (_, policy, text) = pick.get(all);
        let places: Vec<usize> = (0..text.len()).filter(|&index| in_word(text, index)).collect();
        // Keywords lose their meaning when quoted; then the line is malformed, not harmless.
        let at = *at.get(&places);
        let quoted = format!("{}{}{}", &text[..at], ["''", "\"\"", "\\\n", "\\"][what], &text[at..]);
        prop_assert!(denied(&judges[policy], &quoted), "allowed: {quoted}");
    }

    #[test]
    fn any_text_gives_an_answer(pick in any::<prop::sample::Index>(), edits in prop::collection::vec((any::<prop::sample::Index>(), 0..PIECES.len()), 1..8)) {
        let all = if edits.len() % 2 == 0 { &EVERYDAY.1 } else { &DENIED.1 };
        let mut text = pick.get(all).2.clone();
        for (at, piece) in edits {
            let mut at = at.index(text.len() + 1);
            while !text.is_char_boundary(at) {
                at -= 1;
            }
            text.insert_str(at, PIECES[piece]);
        }
        if let Ok(reading) = read(&text, "", &FS_VIEW, &Grants::default()) {
            prop_assert!(reading.commands.iter().all(|simple| !simple.words.is_empty()));
        }
    }

    #[test]
    fn fewer_rules_allow_less(pick in any::<prop::sample::Index>(), drop in any::<prop::sample::Index>()) {
        let (judges, all) = &*EVERYDAY;
        let (_, policy, text) = pick.get(all);
        let (denied_judges, attacks) = &*DENIED;
        prop_assert!(judges[policy].refusal_with(text, true).is_none(), "refused: {text}");
        let (_, policy, attack) = drop.get(attacks);
        prop_assert!(denied(&denied_judges[policy].without(drop.index(1000)), attack));
    }
}

/// Tokens of the shell's grammar.
const PIECES: [&str; 40] = [
    "$(", ")", "`", "\"", "'", "\\", "\n", ";", "&&", "||", "|", "&", ">", "<", "<<E\n", "<<<", "{", "}", "(", "((",
    "))", "[[", "]]", "$'", "${", "$", "*", "?", "~", "=", "#", "if ", "then ", "fi", "for ", "do ", "done", "case ",
    "esac", "é",
];

/// Parts of large hostile texts.
const PARTS: [&str; 24] = [
    "ls ",
    "; ",
    "&& ",
    "| ",
    "$(",
    "(",
    "{ ",
    "`",
    "'",
    "\"",
    "\\",
    "<<E\n",
    "\nE\n",
    "${x",
    "[[ ",
    "if ls; then ",
    "for f in ",
    "do ",
    "a",
    "*",
    "{a,b}",
    "git -a ",
    "sed 's/a/b/' ",
    "\u{202e}",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// Texts up to and over the limit of 16 KiB, made of long repetitions, all get an answer. The benchmark measures
    /// the time.
    #[test]
    fn large_texts_give_an_answer(parts in prop::collection::vec((0..PARTS.len(), 1..3000_usize), 1..12)) {
        let mut text = String::new();
        for (part, times) in parts {
            for _ in 0..times {
                if text.len() < 17_000 {
                    text.push_str(PARTS[part]);
                }
            }
        }
        if let Err(refusal) = read(&text, "", &FS_VIEW, &Grants::default()) {
            prop_assert!(crate::policy::codes::find(&refusal.code).is_some(), "{}", refusal.code);
        }
    }
}
